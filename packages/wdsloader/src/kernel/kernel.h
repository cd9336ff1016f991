/* The crop kernel: JPEG bytes and a box -> the box's pixels, resized. What its files share.
 *
 *   layout.c     walk the markers of a JPEG, and find its restart markers         (no libjpeg)
 *   huffman.c    decode the Huffman codes of blocks of coefficients               (no libjpeg)
 *   units.c      decode the units of a scan that a box needs, pass over the rest  (in libjpeg-turbo's place)
 *   resample.c   Pillow's antialiased bilinear filter, row by row                 (no libjpeg)
 *   decode.c     unpack the rows and columns of a box and resample them           (libjpeg-turbo)
 *   failing.h    how libjpeg-turbo fails in decode.c and restarts.c               (libjpeg-turbo)
 *   normalize.c  pixels of 8 bits -> floats                                       (no libjpeg)
 *   restarts.c   write a JPEG again with restart markers, pixels unchanged        (libjpeg-turbo)
 *   module.c     the Python module wdsloader._crop; the only file that knows Python
 *
 * No global state. No function here needs the GIL except module.c's. Whatever is out of the ordinary about a picture
 * is KERNEL_OTHER: the caller gives such a picture to Pillow, which takes or refuses it in its own words. So the kernel
 * and Pillow take and refuse the same pictures.
 */
#ifndef WDSLOADER_KERNEL_H
#define WDSLOADER_KERNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* On x86-64 some functions are compiled once more, for AVX2 or BMI2, and taken where the machine has them. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(KERNEL_PORTABLE)
#define HAS_AVX2
#define WITH_AVX2 __attribute__((target("avx2")))
#define HAS_BMI2 /* for its shifts by a register */
#define WITH_BMI2 __attribute__((target("bmi,bmi2")))
#endif
#define ALWAYS_INLINE inline __attribute__((always_inline))

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

/* The parts of a scan between restart markers, each of `units` units; one part, the whole, where there are none. */
struct intervals {
    size_t units;
    size_t num;
    size_t *starts; /* num + 1 offsets; NULL where there are no markers, or not all of them in their order */
};

enum kernel_status find_intervals(const uint8_t *data, size_t size, const struct layout *layout,
                                  struct intervals *intervals);

/* The longest codes that one look tells; 2 KiB a table, so that four of them stay near. */
#define LOOK_BITS 9

/* So many bits tell how to pass over several codes at once. */
#define SKIP_BITS 11

struct huffman_table {
    uint32_t entries[1 << LOOK_BITS];
    uint16_t skips[1 << SKIP_BITS]; /* only of the codes that follow a block's first */
    uint32_t limit[17]; /* past the last code of each length, 16 bits from the left */
    int first[17];      /* what leads from a code of that length to its symbol */
    uint8_t symbols[256];
    bool is_dc;
};

/* Where the decoder stands: the next bits, from the left, so many of them, and how many were there no more. */
struct bits {
    const uint8_t *at, *end;
    uint64_t next;
    int count, made_up;
};

/* How one block of a unit is coded. */
struct coding {
    const struct huffman_table *dc, *ac;
    int component;
};

void make_table(struct huffman_table *table, const uint8_t counts[17], const uint8_t symbols[256], bool is_dc);
void begin_bits(struct bits *bits, const uint8_t *at, const uint8_t *end);
bool bits_were_there(const struct bits *bits);
bool unpack_unit(struct bits *bits, const struct coding *codings, int num_blocks, uint32_t *dc,
                 int16_t *const *blocks);

/* Weights of one direction: output i is the sum of weights[i * taps + j] * input[first[i] + j], j < count[i]. */
struct filter {
    int size;   /* outputs */
    int taps;   /* the largest count, rounded up to four; the weights past a count are 0 */
    int *first;
    int *count;
    int32_t *weights;
    int16_t *parted; /* the weights in two parts, as the vector code takes them */
};

enum kernel_status make_filter(struct filter *filter, int num_inputs, float start, float stop, int size, bool mirrored);
void free_filter(struct filter *filter);
void resample_row(const struct filter *filter, const uint8_t *rgbx, uint8_t *rgb);
void blend_rows(const struct filter *filter, int output, const uint8_t *const *rows, uint32_t *sums, uint8_t *out,
                size_t length);

struct crop {
    double x, y, width, height; /* the box, in pixels of the picture */
    bool flip;
    bool dct_scaling;           /* unpack at 1/2, 1/4 or 1/8 where the box stays at least as large as the output */
    uint8_t *out;               /* RGB, rows of out_width * 3 bytes without gaps */
    int out_width, out_height;
};

enum kernel_status crop_picture(const uint8_t *data, size_t size, const struct crop *crop, struct reason *reason);

/* Write the picture again with a restart marker after every `interval` units; *out is to be freed. */
enum kernel_status insert_restarts(const uint8_t *data, size_t size, unsigned interval, uint8_t **out, size_t *out_size,
                                   struct reason *reason);

/* How pixels become floats: (value - shift) * scale of their channel. */
struct normalizing {
    float shift[3], scale[3];
    size_t num_pictures, num_pixels; /* pixels of one picture */
    bool channels_last;              /* pixel by pixel, else plane by plane */
    bool halves;                     /* bfloat16, else float */
};

void normalize_pictures(const struct normalizing *how, const uint8_t *from, void *to);

extern const char LIBJPEG_NAME[];

#endif
