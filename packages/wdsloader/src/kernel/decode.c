/* Unpack the rows and columns of a JPEG that a box needs, and resample them into their slot. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "failing.h"
#include "units.h"

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
    struct failing failing;
    const uint8_t *data;
    size_t size;
    const struct crop *crop;
    struct layout layout;
    int shrinking;         /* 1, 2, 4 or 8 */
    struct rectangle box;  /* the crop's pixels, after shrinking */
    struct jpeg_decompress_struct jpeg;
    struct filter across, down;
    uint8_t *row;          /* one unpacked row, 4 bytes a pixel */
    uint8_t *ring;         /* the last down.taps resampled rows, row y in slot y % down.taps */
    const uint8_t **rows;  /* room for down.taps pointers into it */
    uint32_t *sums;
    struct units *units;   /* NULL: libjpeg decodes the scans itself */
};

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

static boolean decode_mcu(j_decompress_ptr jpeg, JBLOCKROW *blocks) {
    struct job *job = jpeg->client_data;
    if (!next_unit(job->units, blocks)) {
        other(&job->failing, "the packed pixels are damaged");
        longjmp(job->failing.on_error, 1);
    }
    return TRUE;
}

static void free_units(struct job *job) {
    if (job->units)
        free(job->units->intervals.starts);
    free(job->units);
    job->units = NULL;
}

/* Only for a scan whose restart markers are known to be in order: on odd data libjpeg does what it likes. */
static enum kernel_status make_units(struct job *job) {
    if (!job->layout.one_scan)
        return KERNEL_DONE;
    job->units = malloc(sizeof *job->units);
    if (job->units == NULL)
        return KERNEL_NO_MEMORY;
    job->units->data = job->data;
    job->units->size = job->size;
    enum kernel_status status = find_intervals(job->data, job->size, &job->layout, &job->units->intervals);
    if (job->layout.restart_interval && job->units->intervals.starts == NULL)
        free_units(job);
    return status;
}

/* Have the units decoded here that the box and its margin touch, if the scan is an ordinary one. */
static void take_over(struct job *job) {
    int margin = MARGIN * job->shrinking;
    struct rectangle wanted = pixels_of(job->crop, 1);
    wanted = (struct rectangle){max_int(0, wanted.left - margin), max_int(0, wanted.top - margin),
                                min_int(job->layout.width, wanted.right + margin),
                                min_int(job->layout.height, wanted.bottom + margin)};
    if (job->units && begin_units(job->units, &job->jpeg, &job->layout, wanted))
        job->jpeg.entropy->decode_mcu = decode_mcu;
    else
        free_units(job);
}

static enum kernel_status start(struct job *job) {
    struct jpeg_decompress_struct *jpeg = &job->jpeg;
    jpeg_create_decompress(jpeg);
    jpeg_mem_src(jpeg, job->data, (unsigned long)job->size);
    jpeg_read_header(jpeg, TRUE);
    jpeg->out_color_space = JCS_EXT_RGBX;
    jpeg->do_block_smoothing = FALSE;
    jpeg->scale_num = 1;
    jpeg->scale_denom = (unsigned)job->shrinking;
    jpeg_start_decompress(jpeg);
    take_over(job);
    return require_all_scans(&job->failing, jpeg);
}

static enum kernel_status make_room(struct job *job) {
    const struct crop *crop = job->crop;
    struct rectangle box = job->box;
    double x = crop->x / job->shrinking - box.left, y = crop->y / job->shrinking - box.top;
    enum kernel_status status = make_filter(&job->across, box.right - box.left, (float)x,
                                            (float)(x + crop->width / job->shrinking), crop->out_width, crop->flip);
    if (status == KERNEL_DONE)
        status = make_filter(&job->down, box.bottom - box.top, (float)y, (float)(y + crop->height / job->shrinking),
                             crop->out_height, false);
    if (status != KERNEL_DONE)
        return status;
    size_t length = 3 * (size_t)crop->out_width;
    job->row = malloc(4 * ((size_t)job->jpeg.output_width + (size_t)job->across.taps + 1));
    job->ring = malloc((size_t)job->down.taps * length);
    job->rows = malloc((size_t)job->down.taps * sizeof *job->rows);
    job->sums = malloc(length * sizeof *job->sums);
    return job->row && job->ring && job->rows && job->sums ? KERNEL_DONE : KERNEL_NO_MEMORY;
}

/* Write output rows from `done` on, as far as rows up to `last` of the box allow; return the number written so far. */
static int write_rows(struct job *job, int done, int last) {
    const struct filter *down = &job->down;
    const struct crop *crop = job->crop;
    size_t length = 3 * (size_t)crop->out_width;
    for (; done < down->size && down->first[done] + down->count[done] - 1 <= last; done++) {
        for (int j = 0; j < down->count[done]; j++)
            job->rows[j] = job->ring + (size_t)((down->first[done] + j) % down->taps) * length;
        blend_rows(down, done, job->rows, job->sums, crop->out + (size_t)done * length, length);
    }
    return done;
}

static enum kernel_status unpack(struct job *job) {
    struct jpeg_decompress_struct *jpeg = &job->jpeg;
    const struct crop *crop = job->crop;
    struct rectangle box = job->box;
    JDIMENSION left = (JDIMENSION)max_int(0, box.left - MARGIN);
    JDIMENSION width = (JDIMENSION)min_int((int)jpeg->output_width, box.right + MARGIN) - left;
    if (width < jpeg->output_width)
        jpeg_crop_scanline(jpeg, &left, &width);
    /* Where a row begins at a multiple of 16 bytes, libjpeg-turbo writes it past the caches, and reading it waits for
     * the memory: a quarter of the time of a crop. */
    JSAMPROW row = job->row + 4;
    uint8_t *inside = row + 4 * ((size_t)box.left - left), *behind = row + 4 * ((size_t)box.right - left);
    JDIMENSION first = (JDIMENSION)(box.top + job->down.first[0]);
    if (first > 0 && jpeg_skip_scanlines(jpeg, first) != first)
        return other(&job->failing, "rows cannot be passed over");
    size_t length = 3 * (size_t)crop->out_width;
    for (int y = job->down.first[0], done = 0; done < crop->out_height; y++) {
        if (jpeg_read_scanlines(jpeg, &row, 1) != 1)
            return other(&job->failing, "rows are missing");
        memset(behind, 0, 4 * (size_t)job->across.taps); /* read, with weight 0; libjpeg may leave anything there */
        resample_row(&job->across, inside, job->ring + (size_t)(y % job->down.taps) * length);
        done = write_rows(job, done, y);
    }
    return KERNEL_DONE;
}

/* The rows below the box are not unpacked, but a cut picture is refused all the same: look for its end. */
static bool rest_is_whole(struct job *job) {
    struct jpeg_decompress_struct *jpeg = &job->jpeg;
    if (job->units)
        return rest_of_units_is_whole(job->units);
    if (jpeg_has_multiple_scans(jpeg)) /* all of it was read before the first row came */
        return true;
    if (jpeg->unread_marker == JPEG_EOI)
        return true;
    if (jpeg->unread_marker != 0 && (jpeg->unread_marker < JPEG_RST0 || jpeg->unread_marker > JPEG_RST0 + 7))
        return false;
    return scan_is_whole(jpeg->src->next_input_byte, jpeg->src->bytes_in_buffer, 0);
}

static enum kernel_status run(struct job *job) {
    if (setjmp(job->failing.on_error))
        return status_of(&job->failing);
    enum kernel_status status = start(job);
    if (status == KERNEL_DONE)
        status = make_room(job);
    if (status == KERNEL_DONE)
        status = unpack(job);
    if (status == KERNEL_DONE && !rest_is_whole(job))
        status = other(&job->failing, "the picture does not end where its pixels do");
    return status;
}

static void free_job(struct job *job) {
    jpeg_destroy_decompress(&job->jpeg);
    free_units(job);
    free_filter(&job->across);
    free_filter(&job->down);
    free(job->row);
    free(job->ring);
    free(job->rows);
    free(job->sums);
}

/* Write the crop into its slot. What is in the slot otherwise is undefined. */
enum kernel_status crop_picture(const uint8_t *data, size_t size, const struct crop *crop, struct reason *reason) {
    struct job job;
    memset(&job, 0, sizeof job);
    job.data = data;
    job.size = size;
    job.crop = crop;
    job.jpeg.err = begin_failing(&job.failing, reason);
    job.jpeg.client_data = &job;
    enum kernel_status status = read_layout(data, size, &job.layout, reason);
    if (status != KERNEL_DONE)
        return status;
    if (!box_is_inside(crop, &job.layout))
        return other(&job.failing, "the box reaches outside of the picture");
    job.shrinking = pick_shrinking(crop);
    job.box = pixels_of(crop, job.shrinking);
    status = make_units(&job);
    if (status == KERNEL_DONE)
        status = run(&job);
    free_job(&job);
    return status;
}
