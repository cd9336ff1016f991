/* The crop kernel: JPEG bytes and a box -> the box's pixels, resized. What its files share.
 *
 *   layout.c     walk the markers of a JPEG; cut one at its restart markers       (no libjpeg)
 *   resample.c   Pillow's antialiased bilinear filter, row by row                 (no libjpeg)
 *   decode.c     unpack the rows and columns of a box and resample them           (libjpeg-turbo)
 *   restarts.c   write a JPEG again with restart markers, pixels unchanged        (libjpeg-turbo)
 *   module.c     the Python module wdsloader._crop; the only file that knows Python
 *
 * No global state. No function here needs the GIL except module.c's. Whatever is out of the ordinary about a picture
 * is KERNEL_OTHER: the caller gives such a picture to Pillow, which takes or refuses it in its own words. So both
 * paths take and refuse the same pictures.
 */
#ifndef WDSLOADER_KERNEL_H
#define WDSLOADER_KERNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum kernel_status { KERNEL_DONE, KERNEL_OTHER, KERNEL_NO_MEMORY };

/* Why a picture is not for the kernel, in words; as long as libjpeg's longest message (JMSG_LENGTH_MAX). */
#define REASON_SIZE 200
struct reason {
    char text[REASON_SIZE];
};

/* Where things lie in a JPEG, up to its first scan. Offsets are in bytes from its start. */
struct layout {
    int width, height;          /* pixels */
    int num_components;         /* 1 or 3 */
    int mcu_width, mcu_height;  /* pixels that one unit of the scan covers */
    bool progressive;
    bool one_scan;              /* the first scan holds all components, and the picture is not progressive */
    uint32_t restart_interval;  /* units between restart markers; 0 without them */
    size_t sof;                 /* of the frame header's 0xFF */
    size_t scan;                /* of the first byte of packed pixels */
};

/* A rectangle of whole pixels: columns left..right-1, rows top..bottom-1. */
struct rectangle {
    int left, top, right, bottom;
};

enum kernel_status read_layout(const uint8_t *data, size_t size, struct layout *layout, struct reason *reason);
bool scan_is_whole(const uint8_t *data, size_t size, size_t from);

/* A smaller JPEG that shows part of another; left and top say which. data is NULL where nothing was cut. */
struct cutting {
    uint8_t *data;
    size_t size;
    int left, top;
    bool in_order; /* every restart marker is where it must be, and the picture ends where its pixels do */
};

enum kernel_status cut_at_restarts(const uint8_t *data, size_t size, const struct layout *layout,
                                   struct rectangle wanted, struct cutting *cutting);

/* Weights of one direction: output i is the sum of weights[i * taps + j] * input[first[i] + j], j < count[i]. */
struct filter {
    int size;   /* outputs */
    int taps;   /* the largest count, rounded up to even; the weights past a count are 0 */
    int *first;
    int *count;
    int32_t *weights;
    uint32_t *for_channels; /* each weight four times, for the four bytes of a pixel */
};

enum kernel_status make_filter(struct filter *filter, int num_inputs, float start, float stop, int size);
void free_filter(struct filter *filter);
void resample_row(const struct filter *filter, const uint8_t *rgbx, uint8_t *rgb, bool flip);
void blend_rows(const int32_t *weights, const uint8_t *const *rows, int num_rows, uint32_t *sums, uint8_t *out,
                size_t length);

struct crop {
    double x, y, width, height; /* the box, in pixels of the picture */
    bool flip;
    bool dct_scaling;           /* unpack at 1/2, 1/4 or 1/8 where the box stays at least as large as the output */
    uint8_t *out;               /* RGB, rows of out_width * 3 bytes without gaps */
    int out_width, out_height;
};

enum kernel_status crop_picture(const uint8_t *data, size_t size, const struct crop *crop, struct reason *reason);

/* Write the picture again with a restart marker after every `rows` rows of units; *out is to be freed. */
enum kernel_status insert_restarts(const uint8_t *data, size_t size, unsigned rows, uint8_t **out, size_t *out_size,
                                   struct reason *reason);

extern const char LIBJPEG_NAME[];

#endif
