/* Write a JPEG again with restart markers: the same coefficients, so the same pixels; its metadata as it was. */
#include <stdlib.h>
#include <string.h>

#include "failing.h"

struct rewriting {
    struct failing failing;
    struct jpeg_decompress_struct from;
    struct jpeg_compress_struct to;
    struct jpeg_destination_mgr destination;
    uint8_t *out;
    size_t room; /* of out */
};

/* A destination of our own: libjpeg's in memory leaves a dangling pointer behind when an error ends the writing. */
static void grow(j_compress_ptr jpeg) {
    struct rewriting *rewriting = jpeg->client_data;
    size_t used = rewriting->room, room = used ? 2 * used : 1 << 16;
    uint8_t *larger = realloc(rewriting->out, room);
    if (larger == NULL)
        ERREXIT1(jpeg, JERR_OUT_OF_MEMORY, 0);
    rewriting->out = larger;
    rewriting->room = room;
    rewriting->destination.next_output_byte = larger + used;
    rewriting->destination.free_in_buffer = room - used;
}

static boolean grow_when_full(j_compress_ptr jpeg) {
    grow(jpeg);
    return TRUE;
}

static void end(j_compress_ptr jpeg) { (void)jpeg; }

static enum kernel_status run(struct rewriting *rewriting, const uint8_t *data, size_t size, unsigned interval) {
    struct jpeg_decompress_struct *from = &rewriting->from;
    struct jpeg_compress_struct *to = &rewriting->to;
    if (setjmp(rewriting->failing.on_error))
        return status_of(&rewriting->failing);
    jpeg_create_decompress(from);
    jpeg_create_compress(to);
    jpeg_mem_src(from, data, (unsigned long)size);
    jpeg_save_markers(from, JPEG_COM, 0xFFFF);
    for (int app = 0; app < 16; app++)
        jpeg_save_markers(from, JPEG_APP0 + app, 0xFFFF);
    jpeg_read_header(from, TRUE);
    jvirt_barray_ptr *coefficients = jpeg_read_coefficients(from);
    if (require_all_scans(&rewriting->failing, from) != KERNEL_DONE)
        return KERNEL_OTHER;
    jpeg_copy_critical_parameters(from, to);
    to->optimize_coding = TRUE; /* the standard tables would lengthen a picture that came with better ones */
    to->write_JFIF_header = FALSE;
    to->write_Adobe_marker = FALSE; /* both are among the markers kept */
    to->restart_in_rows = 0;
    to->restart_interval = interval;
    to->dest = &rewriting->destination;
    jpeg_write_coefficients(to, coefficients);
    for (jpeg_saved_marker_ptr marker = from->marker_list; marker; marker = marker->next)
        jpeg_write_marker(to, marker->marker, marker->data, marker->data_length);
    jpeg_finish_compress(to);
    jpeg_finish_decompress(from);
    return KERNEL_DONE;
}

/* Some cameras and programs leave data behind the picture's end marker; it stays there. */
static enum kernel_status append_rest(struct rewriting *rewriting, uint8_t **out, size_t *out_size) {
    const struct jpeg_source_mgr *source = rewriting->from.src;
    size_t written = rewriting->room - rewriting->destination.free_in_buffer;
    uint8_t *whole = realloc(rewriting->out, written + source->bytes_in_buffer);
    if (whole == NULL)
        return KERNEL_NO_MEMORY;
    memcpy(whole + written, source->next_input_byte, source->bytes_in_buffer);
    *out = whole;
    *out_size = written + source->bytes_in_buffer;
    rewriting->out = NULL;
    return KERNEL_DONE;
}

enum kernel_status insert_restarts(const uint8_t *data, size_t size, unsigned interval, uint8_t **out, size_t *out_size,
                                   struct reason *reason) {
    struct layout layout;
    enum kernel_status status = read_layout(data, size, &layout, reason);
    if (status != KERNEL_DONE)
        return status;
    struct rewriting rewriting;
    memset(&rewriting, 0, sizeof rewriting);
    rewriting.from.err = rewriting.to.err = begin_failing(&rewriting.failing, reason);
    rewriting.from.client_data = rewriting.to.client_data = &rewriting;
    rewriting.destination.init_destination = grow;
    rewriting.destination.empty_output_buffer = grow_when_full;
    rewriting.destination.term_destination = end;
    status = run(&rewriting, data, size, interval);
    if (status == KERNEL_DONE)
        status = append_rest(&rewriting, out, out_size);
    jpeg_destroy_compress(&rewriting.to);
    jpeg_destroy_decompress(&rewriting.from);
    free(rewriting.out);
    return status;
}
