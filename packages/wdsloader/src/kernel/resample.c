/* Pillow's antialiased bilinear filter (src/libImaging/Resample.c): a triangle as wide as the scale, weights of 22
 * bits, columns first, then rows, each rounded to 8 bits. Whole numbers in the same order of rounding, so the result
 * is Pillow's to the bit, on every machine and with every instruction set.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernel.h"

#define WEIGHT_BITS 22 /* 32 - 8 bits of a pixel - 2 */
#define HALF (1u << (WEIGHT_BITS - 1))

/* The loops are plain C for the compiler to vectorise; on x86-64 with glibc it makes each twice, and the machine takes
 * the one it can run. AVX2 makes the two passes three times as fast as SSE2, which has no 32-bit multiplication. */
#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__has_attribute) && !defined(KERNEL_NO_CLONES)
#if __has_attribute(target_clones)
#define CLONED __attribute__((target_clones("avx2", "default")))
#endif
#endif
#ifndef CLONED
#define CLONED
#endif

static double triangle(double x) {
    x = fabs(x);
    return x < 1.0 ? 1.0 - x : 0.0;
}

static void fill_weights(struct filter *filter, double *shares, int num_inputs, float start, float stop) {
    double scale = (double)(stop - start) / filter->size;
    double width = scale < 1.0 ? 1.0 : scale;
    for (int i = 0; i < filter->size; i++) {
        double centre = start + (i + 0.5) * scale;
        int first = (int)(centre - width + 0.5), end = (int)(centre + width + 0.5);
        if (first < 0)
            first = 0;
        if (end > num_inputs)
            end = num_inputs;
        double sum = 0.0;
        for (int j = 0; j < end - first; j++)
            sum += shares[j] = triangle((j + first - centre + 0.5) * (1.0 / width));
        for (int j = 0; j < end - first; j++) {
            double share = sum == 0.0 ? shares[j] : shares[j] / sum;
            filter->weights[(size_t)i * filter->taps + j] = (int32_t)(0.5 + share * (1 << WEIGHT_BITS));
        }
        filter->first[i] = first;
        filter->count[i] = end - first;
    }
}

/* Make the weights that take inputs start..stop of num_inputs to `size` outputs. Floats, because Pillow's are. */
enum kernel_status make_filter(struct filter *filter, int num_inputs, float start, float stop, int size) {
    double scale = (double)(stop - start) / size;
    filter->size = size;
    filter->taps = ((int)ceil(scale < 1.0 ? 1.0 : scale) * 2 + 2) & ~1;
    filter->first = malloc((size_t)size * sizeof *filter->first);
    filter->count = malloc((size_t)size * sizeof *filter->count);
    filter->weights = calloc((size_t)size * filter->taps, sizeof *filter->weights);
    double *shares = malloc((size_t)filter->taps * sizeof *shares);
    bool whole = filter->first && filter->count && filter->weights && shares;
    if (whole)
        fill_weights(filter, shares, num_inputs, start, stop);
    free(shares);
    return whole ? KERNEL_DONE : KERNEL_NO_MEMORY;
}

void free_filter(struct filter *filter) {
    free(filter->first);
    free(filter->count);
    free(filter->weights);
}

/* The rounded weights of many inputs can sum to a little more than 1. */
static inline uint8_t to_pixel(uint32_t sum) {
    uint32_t value = sum >> WEIGHT_BITS;
    return (uint8_t)(value > 255 ? 255 : value);
}

/* Resample one row of 4-byte pixels to 3-byte ones. One pixel past the last may be read; its weight is 0. */
CLONED void resample_row(const struct filter *filter, const uint8_t *rgbx, uint8_t *rgb, bool flip) {
    const int32_t *weights = filter->weights;
    for (int i = 0; i < filter->size; i++, weights += filter->taps) {
        const uint8_t *from = rgbx + 4 * (size_t)filter->first[i];
        uint32_t sums[8] = {HALF, HALF, HALF, HALF};
        for (int j = 0; j < filter->count[i]; j += 2, from += 8)
            for (int c = 0; c < 8; c++)
                sums[c] += (uint32_t)weights[j + c / 4] * from[c];
        uint8_t *to = rgb + 3 * (size_t)(flip ? filter->size - 1 - i : i);
        for (int c = 0; c < 3; c++)
            to[c] = to_pixel(sums[c] + sums[c + 4]);
    }
}

/* Write the weighted sum of rows of `length` bytes. sums: room for `length` numbers. */
CLONED void blend_rows(const int32_t *weights, const uint8_t *const *rows, int num_rows, uint32_t *sums, uint8_t *out,
                       size_t length) {
    for (size_t i = 0; i < length; i++)
        sums[i] = HALF;
    for (int j = 0; j < num_rows; j++) {
        const uint8_t *row = rows[j];
        uint32_t weight = (uint32_t)weights[j];
        for (size_t i = 0; i < length; i++)
            sums[i] += weight * row[i];
    }
    for (size_t i = 0; i < length; i++)
        out[i] = to_pixel(sums[i]);
}
