/* Unpack the rows and columns of a JPEG that a box needs, and resample them into their slot. */
#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>

#include <jerror.h>

#include "kernel.h"

#define STRING_OF(x) #x
#define STRING(x) STRING_OF(x)
#ifdef LIBJPEG_TURBO_VERSION
const char LIBJPEG_NAME[] = "libjpeg-turbo " STRING(LIBJPEG_TURBO_VERSION);
#else
#error "jpeg_crop_scanline and jpeg_skip_scanlines are libjpeg-turbo's alone"
#endif

/* libjpeg interpolates chroma from the next pixel but two at most, and treats the edges of what it unpacks as the
 * picture's. So this many rows and columns more than the box on each side, and its own come out as in the whole. */
#define MARGIN 2

/* The start of libjpeg's own type (jpegint.h), the same in every version since 6b. */
struct jpeg_entropy_decoder {
    void (*start_pass)(j_decompress_ptr jpeg);
    boolean (*decode_mcu)(j_decompress_ptr jpeg, JBLOCKROW *blocks);
};

struct job {
    struct jpeg_decompress_struct jpeg;
    struct jpeg_error_mgr errors;
    jmp_buf on_error;
    struct reason *reason;
    struct filter across, down;
    uint8_t *row;          /* one unpacked row, 4 bytes a pixel */
    uint8_t *ring;         /* the last down.taps resampled rows, row y in slot y % down.taps */
    const uint8_t **rows;  /* room for down.taps pointers into it */
    uint32_t *sums;
    boolean (*decode_mcu)(j_decompress_ptr jpeg, JBLOCKROW *blocks);
    bool in_order;         /* see struct cutting */
    unsigned interval;     /* units between restart markers, where decode_unit is in use */
    unsigned to_go;        /* of them before the next marker */
};

static struct job *job_of(j_common_ptr jpeg) { return jpeg->client_data; }

static void stop(j_common_ptr jpeg) {
    struct job *job = job_of(jpeg);
    jpeg->err->format_message(jpeg, job->reason->text);
    longjmp(job->on_error, 1);
}

/* A warning (level -1) stops as an error does: from there on the picture would be filled with gray. */
static void stop_at_warning(j_common_ptr jpeg, int level) {
    if (level < 0)
        stop(jpeg);
}

static enum kernel_status other(struct job *job, const char *text) {
    snprintf(job->reason->text, sizeof job->reason->text, "%s", text);
    return KERNEL_OTHER;
}

static int max_int(int a, int b) { return a > b ? a : b; }
static int min_int(int a, int b) { return a < b ? a : b; }

/* Return the largest of 1, 2, 4, 8 by which the box can shrink and still be no smaller than the output. */
static int pick_shrinking(const struct crop *crop) {
    int shrinking = 1;
    if (crop->dct_scaling)
        while (shrinking < 8 && crop->width >= 2.0 * shrinking * crop->out_width &&
               crop->height >= 2.0 * shrinking * crop->out_height)
            shrinking *= 2;
    return shrinking;
}

static bool box_is_inside(const struct crop *crop, const struct layout *layout) {
    return crop->x >= 0 && crop->y >= 0 && crop->width > 0 && crop->height > 0 &&
           crop->x + crop->width <= layout->width && crop->y + crop->height <= layout->height;
}

/* The pixels that a box touches, after shrinking. */
static struct rectangle pixels_of(const struct crop *crop, int shrinking) {
    return (struct rectangle){(int)floor(crop->x / shrinking), (int)floor(crop->y / shrinking),
                              (int)ceil((crop->x + crop->width) / shrinking),
                              (int)ceil((crop->y + crop->height) / shrinking)};
}

/* libjpeg-turbo unpacks a picture that has restart markers with its slow decoder throughout, which costs more than
 * cutting at the markers saves. So it is told of an interval of one unit, and only at the first unit of each interval;
 * between them it sees none and is fast. Were a version to count differently, it would meet a marker unawares and warn,
 * and Pillow would get the picture. Only for markers known to be in order: the two decoders differ on odd data.
 */
static boolean decode_unit(j_decompress_ptr jpeg, JBLOCKROW *blocks) {
    struct job *job = jpeg->client_data;
    bool first = job->to_go == 0;
    if (first)
        job->to_go = job->interval;
    jpeg->restart_interval = first;
    job->to_go--;
    return job->decode_mcu(jpeg, blocks);
}

static void decode_fast_between_restarts(struct job *job) {
    job->decode_mcu = job->jpeg.entropy->decode_mcu;
    job->jpeg.entropy->decode_mcu = decode_unit;
}

static enum kernel_status start(struct job *job, const uint8_t *data, size_t size, int shrinking) {
    struct jpeg_decompress_struct *jpeg = &job->jpeg;
    jpeg_create_decompress(jpeg);
    jpeg_mem_src(jpeg, data, (unsigned long)size);
    jpeg_read_header(jpeg, TRUE);
    jpeg->out_color_space = JCS_EXT_RGBX;
    jpeg->do_block_smoothing = FALSE;
    jpeg->scale_num = 1;
    jpeg->scale_denom = (unsigned)shrinking;
    if (job->in_order && jpeg->restart_interval > 1) {
        job->interval = jpeg->restart_interval;
        jpeg->restart_interval = 1;
    }
    jpeg_start_decompress(jpeg);
    if (job->interval)
        decode_fast_between_restarts(job);
    if (jpeg->coef_bits) /* a progressive picture; libjpeg smooths one that lacks bits, with Pillow */
        for (int c = 0; c < jpeg->num_components; c++)
            for (int k = 0; k < DCTSIZE2; k++)
                if (jpeg->coef_bits[c][k] != 0)
                    return other(job, "a progressive picture without all of its scans");
    return KERNEL_DONE;
}

static enum kernel_status make_room(struct job *job, const struct crop *crop, struct rectangle box, int shrinking) {
    double x = crop->x / shrinking - box.left, y = crop->y / shrinking - box.top;
    enum kernel_status status = make_filter(&job->across, box.right - box.left, (float)x,
                                            (float)(x + crop->width / shrinking), crop->out_width);
    if (status == KERNEL_DONE)
        status = make_filter(&job->down, box.bottom - box.top, (float)y, (float)(y + crop->height / shrinking),
                             crop->out_height);
    if (status != KERNEL_DONE)
        return status;
    size_t length = 3 * (size_t)crop->out_width;
    job->row = calloc((size_t)job->jpeg.output_width + 1, 4);
    job->ring = malloc((size_t)job->down.taps * length);
    job->rows = malloc((size_t)job->down.taps * sizeof *job->rows);
    job->sums = malloc(length * sizeof *job->sums);
    return job->row && job->ring && job->rows && job->sums ? KERNEL_DONE : KERNEL_NO_MEMORY;
}

/* Write output rows from `done` on, as far as rows up to `last` of the box allow; return the number written so far. */
static int write_rows(struct job *job, const struct crop *crop, int done, int last) {
    const struct filter *down = &job->down;
    size_t length = 3 * (size_t)crop->out_width;
    for (; done < down->size && down->first[done] + down->count[done] - 1 <= last; done++) {
        for (int j = 0; j < down->count[done]; j++)
            job->rows[j] = job->ring + (size_t)((down->first[done] + j) % down->taps) * length;
        blend_rows(down->weights + (size_t)done * down->taps, job->rows, down->count[done], job->sums,
                   crop->out + (size_t)done * length, length);
    }
    return done;
}

/* Unpack and resample. box: the crop's pixels, as counted in the (cut and shrunk) picture that is being unpacked. */
static enum kernel_status unpack(struct job *job, const struct crop *crop, struct rectangle box) {
    struct jpeg_decompress_struct *jpeg = &job->jpeg;
    JDIMENSION left = (JDIMENSION)max_int(0, box.left - MARGIN);
    JDIMENSION width = (JDIMENSION)min_int((int)jpeg->output_width, box.right + MARGIN) - left;
    if (width < jpeg->output_width)
        jpeg_crop_scanline(jpeg, &left, &width);
    const uint8_t *row = job->row + 4 * ((size_t)box.left - left);
    JDIMENSION first = (JDIMENSION)(box.top + job->down.first[0]);
    if (first > 0 && jpeg_skip_scanlines(jpeg, first) != first)
        return other(job, "rows cannot be passed over");
    size_t length = 3 * (size_t)crop->out_width;
    for (int y = job->down.first[0], done = 0; done < crop->out_height; y++) {
        if (jpeg_read_scanlines(jpeg, &job->row, 1) != 1)
            return other(job, "rows are missing");
        resample_row(&job->across, row, job->ring + (size_t)(y % job->down.taps) * length, crop->flip);
        done = write_rows(job, crop, done, y);
    }
    return KERNEL_DONE;
}

/* The rows below the box are not unpacked, but a cut picture is refused all the same: look for its end. */
static bool rest_is_whole(struct jpeg_decompress_struct *jpeg) {
    if (jpeg_has_multiple_scans(jpeg)) /* all of it was read before the first row came */
        return true;
    if (jpeg->unread_marker == JPEG_EOI)
        return true;
    if (jpeg->unread_marker != 0 && (jpeg->unread_marker < JPEG_RST0 || jpeg->unread_marker > JPEG_RST0 + 7))
        return false;
    return scan_is_whole(jpeg->src->next_input_byte, jpeg->src->bytes_in_buffer, 0);
}

static enum kernel_status run(struct job *job, const uint8_t *data, size_t size, const struct crop *crop,
                              struct rectangle box, int shrinking) {
    if (setjmp(job->on_error))
        return job->errors.msg_code == JERR_OUT_OF_MEMORY ? KERNEL_NO_MEMORY : KERNEL_OTHER;
    enum kernel_status status = start(job, data, size, shrinking);
    if (status == KERNEL_DONE)
        status = make_room(job, crop, box, shrinking);
    if (status == KERNEL_DONE)
        status = unpack(job, crop, box);
    if (status == KERNEL_DONE && !rest_is_whole(&job->jpeg))
        status = other(job, "the picture does not end where its pixels do");
    return status;
}

static void free_job(struct job *job) {
    jpeg_destroy_decompress(&job->jpeg);
    free_filter(&job->across);
    free_filter(&job->down);
    free(job->row);
    free(job->ring);
    free(job->rows);
    free(job->sums);
}

/* Write the crop into its slot. What is in the slot otherwise is undefined. */
enum kernel_status crop_picture(const uint8_t *data, size_t size, const struct crop *crop, struct reason *reason) {
    struct layout layout;
    enum kernel_status status = read_layout(data, size, &layout, reason);
    if (status != KERNEL_DONE)
        return status;
    struct job job;
    memset(&job, 0, sizeof job);
    job.reason = reason;
    job.jpeg.err = jpeg_std_error(&job.errors);
    job.jpeg.client_data = &job;
    job.errors.error_exit = stop;
    job.errors.emit_message = stop_at_warning;
    if (!box_is_inside(crop, &layout))
        return other(&job, "the box reaches outside of the picture");

    int shrinking = pick_shrinking(crop), margin = MARGIN * shrinking;
    struct rectangle box = pixels_of(crop, shrinking), wanted = pixels_of(crop, 1);
    wanted = (struct rectangle){max_int(0, wanted.left - margin), max_int(0, wanted.top - margin),
                                min_int(layout.width, wanted.right + margin),
                                min_int(layout.height, wanted.bottom + margin)};
    struct cutting cutting;
    status = cut_at_restarts(data, size, &layout, wanted, &cutting);
    if (status != KERNEL_DONE)
        return status;
    job.in_order = cutting.in_order;
    if (cutting.data) { /* cut along units of at least 8 pixels, so that these divide evenly */
        int left = cutting.left / shrinking, top = cutting.top / shrinking;
        struct rectangle moved = {box.left - left, box.top - top, box.right - left, box.bottom - top};
        struct crop there = *crop;
        there.x -= cutting.left;
        there.y -= cutting.top;
        status = run(&job, cutting.data, cutting.size, &there, moved, shrinking);
    } else {
        status = run(&job, data, size, crop, box, shrinking);
    }
    free(cutting.data);
    free_job(&job);
    return status;
}
