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

/* SSE2, which every x86-64 has, cannot multiply 32 bits. */
#ifdef HAS_AVX2
#include <immintrin.h>
#endif

/* Every 64-bit ARM has NEON. */
#if defined(__aarch64__) && defined(__ARM_NEON) && !defined(KERNEL_PORTABLE)
#include <arm_neon.h>
#define HAS_NEON
#endif

/* The parts in which 16 bits hold a weight: 2^22 at most, so the upper one is 2^11 at most. */
#define LOWER_BITS 11

static int rounded_up(int number) { return (number + 3) & ~3; }

static double triangle(double x) {
    x = fabs(x);
    return x < 1.0 ? 1.0 - x : 0.0;
}

/* Find which inputs each output is made of, and how many at most. */
static void place(struct filter *filter, int num_inputs, float start, float stop, bool mirrored) {
    double scale = (double)(stop - start) / filter->size;
    double width = scale < 1.0 ? 1.0 : scale;
    int most = 1;
    for (int k = 0; k < filter->size; k++) {
        int i = mirrored ? filter->size - 1 - k : k;
        double centre = start + (k + 0.5) * scale;
        int first = (int)(centre - width + 0.5), end = (int)(centre + width + 0.5);
        if (first < 0)
            first = 0;
        if (end > num_inputs)
            end = num_inputs;
        filter->first[i] = first;
        filter->count[i] = end - first;
        if (end - first > most)
            most = end - first;
    }
    filter->taps = rounded_up(most);
}

static void weigh(struct filter *filter, double *shares, float start, float stop, bool mirrored) {
    double scale = (double)(stop - start) / filter->size;
    double width = scale < 1.0 ? 1.0 : scale;
    for (int k = 0; k < filter->size; k++) {
        int i = mirrored ? filter->size - 1 - k : k;
        double centre = start + (k + 0.5) * scale, sum = 0.0;
        for (int j = 0; j < filter->count[i]; j++)
            sum += shares[j] = triangle((j + filter->first[i] - centre + 0.5) * (1.0 / width));
        for (int j = 0; j < filter->count[i]; j++) {
            double share = sum == 0.0 ? shares[j] : shares[j] / sum;
            filter->weights[(size_t)i * filter->taps + j] = (int32_t)(0.5 + share * (1 << WEIGHT_BITS));
        }
    }
}

/* Lay the weights out for resample_row_avx2: for each four inputs the upper and then the lower part of their weights,
 * in pairs (0 and 1, 2 and 3), each pair once for each of the four bytes of a pixel.
 */
static void part_weights(struct filter *filter) {
    int16_t *to = filter->parted;
    for (size_t j = 0; j < (size_t)rounded_up(filter->size) * (size_t)filter->taps; j += 4, to += 32)
        for (int pair = 0; pair < 2; pair++)
            for (int k = 0; k < 8; k++) {
                int32_t weight = filter->weights[j + 2 * pair + (k & 1)];
                to[8 * pair + k] = (int16_t)(weight >> LOWER_BITS);
                to[16 + 8 * pair + k] = (int16_t)(weight & ((1 << LOWER_BITS) - 1));
            }
}

/* Make the weights that take inputs start..stop of num_inputs to `size` outputs. Floats, because Pillow's are. */
enum kernel_status make_filter(struct filter *filter, int num_inputs, float start, float stop, int size, bool mirrored) {
    size_t room = (size_t)rounded_up(size);
    filter->size = size;
    filter->first = calloc(room, sizeof *filter->first);
    filter->count = calloc(room, sizeof *filter->count);
    if (filter->first == NULL || filter->count == NULL)
        return KERNEL_NO_MEMORY;
    place(filter, num_inputs, start, stop, mirrored);
    filter->weights = calloc(room * filter->taps, sizeof *filter->weights);
    filter->parted = malloc(8 * room * filter->taps * sizeof *filter->parted);
    double *shares = malloc((size_t)filter->taps * sizeof *shares);
    bool whole = filter->weights && filter->parted && shares;
    if (whole) {
        weigh(filter, shares, start, stop, mirrored);
        part_weights(filter);
    }
    free(shares);
    return whole ? KERNEL_DONE : KERNEL_NO_MEMORY;
}

void free_filter(struct filter *filter) {
    free(filter->first);
    free(filter->count);
    free(filter->weights);
    free(filter->parted);
}

/* The rounded weights of many inputs can sum to a little more than 1. */
static inline uint8_t to_pixel(uint32_t sum) {
    uint32_t value = sum >> WEIGHT_BITS;
    return (uint8_t)(value > 255 ? 255 : value);
}

#ifdef HAS_AVX2
/* The weighted sum of one output's inputs: four numbers, red to nothing. */
WITH_AVX2 static ALWAYS_INLINE __m128i weigh_avx2(const uint8_t *from, const int16_t *parted, int taps) {
    const __m128i pairs = _mm_setr_epi8(0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15);
    __m256i upper = _mm256_setzero_si256(), lower = _mm256_setzero_si256();
    for (int j = 0; j < taps; j += 4, from += 16, parted += 32) {
        __m128i four = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)from), pairs);
        __m256i pixels = _mm256_cvtepu8_epi16(four);
        upper = _mm256_add_epi32(upper, _mm256_madd_epi16(pixels, _mm256_loadu_si256((const __m256i *)parted)));
        lower = _mm256_add_epi32(lower, _mm256_madd_epi16(pixels, _mm256_loadu_si256((const __m256i *)parted + 1)));
    }
    __m256i sum = _mm256_add_epi32(_mm256_slli_epi32(upper, LOWER_BITS), lower);
    return _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
}

/* Four outputs at a time. GCC 12 does not find this in the portable loop (six times as slow). */
WITH_AVX2 static ALWAYS_INLINE void resample_avx2(const struct filter *filter, const uint8_t *rgbx, uint8_t *to,
                                                  int taps) {
    const __m128i half = _mm_set1_epi32(HALF);
    const __m128i drop_x = _mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1);
    const int16_t *parted = filter->parted;
    for (int i = 0; i < filter->size; i += 4, to += 12) {
        __m128i sums[4];
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++, parted += 8 * (size_t)taps) {
            __m128i sum = weigh_avx2(rgbx + 4 * (size_t)filter->first[i + j], parted, taps);
            sums[j] = _mm_srli_epi32(_mm_add_epi32(sum, half), WEIGHT_BITS);
        }
        __m128i pixels = _mm_packus_epi16(_mm_packus_epi32(sums[0], sums[1]), _mm_packus_epi32(sums[2], sums[3]));
        uint8_t out[16];
        _mm_storeu_si128((__m128i *)out, _mm_shuffle_epi8(pixels, drop_x));
        if (filter->size - i >= 4)
            memcpy(to, out, 12);
        else
            memcpy(to, out, 3 * (size_t)(filter->size - i));
    }
}

WITH_AVX2 static void resample_row_avx2(const struct filter *filter, const uint8_t *rgbx, uint8_t *to) {
    if (filter->taps == 4) /* for scales up to 1.5, which are most */
        resample_avx2(filter, rgbx, to, 4);
    else
        resample_avx2(filter, rgbx, to, filter->taps);
}
#endif

#ifdef HAS_NEON
/* Neither GCC 12 nor clang 14 finds this in the portable loop, where an output has fewer than 16 inputs. */
static ALWAYS_INLINE void resample_neon(const struct filter *filter, const uint8_t *rgbx, uint8_t *to, int taps) {
    const int32_t *weights = filter->weights;
    for (int i = 0; i < filter->size; i++, to += 3) {
        const uint8_t *from = rgbx + 4 * (size_t)filter->first[i];
        uint32x4_t sum = vdupq_n_u32(HALF);
        for (int j = 0; j < taps; j += 4, from += 16, weights += 4) {
            uint32x4_t four = vreinterpretq_u32_s32(vld1q_s32(weights));
            uint8x16_t bytes = vld1q_u8(from);
            uint16x8_t front = vmovl_u8(vget_low_u8(bytes)), back = vmovl_high_u8(bytes);
            sum = vmlaq_laneq_u32(sum, vmovl_u16(vget_low_u16(front)), four, 0);
            sum = vmlaq_laneq_u32(sum, vmovl_high_u16(front), four, 1);
            sum = vmlaq_laneq_u32(sum, vmovl_u16(vget_low_u16(back)), four, 2);
            sum = vmlaq_laneq_u32(sum, vmovl_high_u16(back), four, 3);
        }
        uint16x4_t words = vshrn_n_u32(sum, 16);
        uint8x8_t pixel = vqshrn_n_u16(vcombine_u16(words, words), WEIGHT_BITS - 16);
        vst1_lane_u8(to, pixel, 0);
        vst1_lane_u8(to + 1, pixel, 1);
        vst1_lane_u8(to + 2, pixel, 2);
    }
}

static void resample_row_neon(const struct filter *filter, const uint8_t *rgbx, uint8_t *to) {
    if (filter->taps == 4)
        resample_neon(filter, rgbx, to, 4);
    else
        resample_neon(filter, rgbx, to, filter->taps);
}
#endif

static void resample_row_portable(const struct filter *filter, const uint8_t *rgbx, uint8_t *to) {
    const int32_t *weights = filter->weights;
    for (int i = 0; i < filter->size; i++, to += 3, weights += filter->taps) {
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

/* Resample one row of 4-byte pixels to 3-byte ones. Up to `taps` pixels past the last may be read; their weight is 0. */
void resample_row(const struct filter *filter, const uint8_t *rgbx, uint8_t *rgb) {
#ifdef HAS_AVX2
    if (__builtin_cpu_supports("avx2")) {
        resample_row_avx2(filter, rgbx, rgb);
        return;
    }
#elif defined(HAS_NEON)
    resample_row_neon(filter, rgbx, rgb);
    return;
#endif
    resample_row_portable(filter, rgbx, rgb);
}

static void blend_portable(const int32_t *weights, const uint8_t *const *rows, int num_rows, uint32_t *sums,
                           uint8_t *out, size_t from, size_t length) {
    for (size_t i = from; i < length; i++)
        sums[i] = HALF;
    for (int j = 0; j < num_rows; j++) {
        const uint8_t *row = rows[j];
        uint32_t weight = (uint32_t)weights[j];
        for (size_t i = from; i < length; i++)
            sums[i] += weight * row[i];
    }
    for (size_t i = from; i < length; i++)
        out[i] = to_pixel(sums[i]);
}

#ifdef HAS_AVX2
WITH_AVX2 static ALWAYS_INLINE __m256i whole_avx2(__m256i upper, __m256i lower) {
    __m256i sum = _mm256_add_epi32(_mm256_slli_epi32(upper, LOWER_BITS), lower);
    return _mm256_srli_epi32(_mm256_add_epi32(sum, _mm256_set1_epi32(HALF)), WEIGHT_BITS);
}

/* Sixteen columns at a time, two rows at a time; return how many columns are done. */
WITH_AVX2 static size_t blend_avx2(const int16_t *parted, const uint8_t *const *rows, int num_rows, uint8_t *out,
                                   size_t length) {
    size_t i = 0;
    for (; i + 16 <= length; i += 16) {
        __m256i upper[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
        __m256i lower[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
        for (int j = 0; j < num_rows; j += 2) {
            int32_t weights[2];
            memcpy(&weights[0], parted + 8 * (size_t)(j & ~3) + 4 * (j & 2), 4);
            memcpy(&weights[1], parted + 8 * (size_t)(j & ~3) + 4 * (j & 2) + 16, 4);
            __m256i above = _mm256_set1_epi32(weights[0]), below = _mm256_set1_epi32(weights[1]);
            __m128i a = _mm_loadu_si128((const __m128i *)(rows[j] + i)), b = _mm_setzero_si128();
            if (j + 1 < num_rows)
                b = _mm_loadu_si128((const __m128i *)(rows[j + 1] + i));
            __m256i pixels[2] = {_mm256_cvtepu8_epi16(_mm_unpacklo_epi8(a, b)),
                                 _mm256_cvtepu8_epi16(_mm_unpackhi_epi8(a, b))};
            for (int k = 0; k < 2; k++) {
                upper[k] = _mm256_add_epi32(upper[k], _mm256_madd_epi16(pixels[k], above));
                lower[k] = _mm256_add_epi32(lower[k], _mm256_madd_epi16(pixels[k], below));
            }
        }
        __m256i words = _mm256_packus_epi32(whole_avx2(upper[0], lower[0]), whole_avx2(upper[1], lower[1]));
        words = _mm256_permute4x64_epi64(words, 0xD8);
        _mm_storeu_si128((__m128i *)(out + i),
                         _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)));
    }
    return i;
}
#endif

/* Write one output of the filter over rows of `length` bytes. sums: room for `length` numbers. */
void blend_rows(const struct filter *filter, int output, const uint8_t *const *rows, uint32_t *sums, uint8_t *out,
                size_t length) {
    size_t place = (size_t)output * (size_t)filter->taps, done = 0;
#ifdef HAS_AVX2
    if (__builtin_cpu_supports("avx2"))
        done = blend_avx2(filter->parted + 8 * place, rows, filter->count[output], out, length);
#endif
    blend_portable(filter->weights + place, rows, filter->count[output], sums, out, done, length);
}
