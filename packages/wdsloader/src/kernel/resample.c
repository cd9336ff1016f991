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

/* On x86-64, AVX2 is taken where the machine has it; SSE2, which every one has, cannot multiply 32 bits. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(KERNEL_PORTABLE)
#include <immintrin.h>
#define HAS_AVX2
#define WITH_AVX2 __attribute__((target("avx2")))
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
        for (int j = 0; j < filter->taps; j++)
            for (int c = 0; c < 4; c++)
                filter->for_channels[((size_t)i * filter->taps + j) * 4 + c] =
                    (uint32_t)filter->weights[(size_t)i * filter->taps + j];
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
    filter->for_channels = malloc(4 * (size_t)size * filter->taps * sizeof *filter->for_channels);
    double *shares = malloc((size_t)filter->taps * sizeof *shares);
    bool whole = filter->first && filter->count && filter->weights && filter->for_channels && shares;
    if (whole)
        fill_weights(filter, shares, num_inputs, start, stop);
    free(shares);
    return whole ? KERNEL_DONE : KERNEL_NO_MEMORY;
}

void free_filter(struct filter *filter) {
    free(filter->first);
    free(filter->count);
    free(filter->weights);
    free(filter->for_channels);
}

/* The rounded weights of many inputs can sum to a little more than 1. */
static inline uint8_t to_pixel(uint32_t sum) {
    uint32_t value = sum >> WEIGHT_BITS;
    return (uint8_t)(value > 255 ? 255 : value);
}

#ifdef HAS_AVX2
/* Two pixels of four bytes at a time. GCC 12 does not find this in the portable loop (three times as slow). */
WITH_AVX2 static void resample_row_avx2(const struct filter *filter, const uint8_t *rgbx, uint8_t *to,
                                        ptrdiff_t step) {
    const uint32_t *weights = filter->for_channels;
    for (int i = 0; i < filter->size; i++, to += step, weights += 4 * (size_t)filter->taps) {
        const uint8_t *from = rgbx + 4 * (size_t)filter->first[i];
        __m256i sums = _mm256_setr_epi32(HALF, HALF, HALF, HALF, 0, 0, 0, 0);
        for (int j = 0; j < filter->count[i]; j += 2, from += 8) {
            __m256i pixels = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)from));
            __m256i weight = _mm256_loadu_si256((const __m256i *)(weights + 4 * (size_t)j));
            sums = _mm256_add_epi32(sums, _mm256_mullo_epi32(pixels, weight));
        }
        __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
        sum = _mm_packus_epi32(_mm_srli_epi32(sum, WEIGHT_BITS), sum);
        uint32_t pixel = (uint32_t)_mm_cvtsi128_si32(_mm_packus_epi16(sum, sum));
        to[0] = (uint8_t)pixel;
        to[1] = (uint8_t)(pixel >> 8);
        to[2] = (uint8_t)(pixel >> 16);
    }
}
#endif

static void resample_row_portable(const struct filter *filter, const uint8_t *rgbx, uint8_t *to, ptrdiff_t step) {
    const int32_t *weights = filter->weights;
    for (int i = 0; i < filter->size; i++, to += step, weights += filter->taps) {
        const uint8_t *from = rgbx + 4 * (size_t)filter->first[i];
        uint32_t red = HALF, green = HALF, blue = HALF;
        for (int j = 0; j < filter->count[i]; j++, from += 4) {
            uint32_t weight = (uint32_t)weights[j];
            red += weight * from[0];
            green += weight * from[1];
            blue += weight * from[2];
        }
        to[0] = to_pixel(red);
        to[1] = to_pixel(green);
        to[2] = to_pixel(blue);
    }
}

/* Resample one row of 4-byte pixels to 3-byte ones. One pixel past the last may be read; its weight is 0. */
void resample_row(const struct filter *filter, const uint8_t *rgbx, uint8_t *rgb, bool flip) {
    uint8_t *to = flip ? rgb + 3 * (size_t)(filter->size - 1) : rgb;
    ptrdiff_t step = flip ? -3 : 3;
#ifdef HAS_AVX2
    if (__builtin_cpu_supports("avx2")) {
        resample_row_avx2(filter, rgbx, to, step);
        return;
    }
#endif
    resample_row_portable(filter, rgbx, to, step);
}

/* Plain enough for any compiler to vectorise, so it is written once and compiled for each instruction set. */
static inline __attribute__((always_inline)) void blend(const int32_t *weights, const uint8_t *const *rows,
                                                        int num_rows, uint32_t *sums, uint8_t *out, size_t length) {
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

#ifdef HAS_AVX2
WITH_AVX2 static void blend_avx2(const int32_t *weights, const uint8_t *const *rows, int num_rows, uint32_t *sums,
                                 uint8_t *out, size_t length) {
    blend(weights, rows, num_rows, sums, out, length);
}
#endif

/* Write the weighted sum of rows of `length` bytes. sums: room for `length` numbers. */
void blend_rows(const int32_t *weights, const uint8_t *const *rows, int num_rows, uint32_t *sums, uint8_t *out,
                size_t length) {
#ifdef HAS_AVX2
    if (__builtin_cpu_supports("avx2")) {
        blend_avx2(weights, rows, num_rows, sums, out, length);
        return;
    }
#endif
    blend(weights, rows, num_rows, sums, out, length);
}
