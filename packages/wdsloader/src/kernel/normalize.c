/* Bytes of pixels -> floats of mean 0 and deviation 1, in one pass: (value - shift) * scale, each rounded to 32 bits, in
 * this order, as torch does it in three. Plain loops, compiled once more for AVX2.
 */
#include <string.h>

#include "kernel.h"

/* Bytes after which red is at the begin of a vector of eight again, times four to keep several under way. */
#define STRIDE 96

/* The nearest bfloat16, to even; there are no NaNs here. */
static ALWAYS_INLINE uint16_t to_bfloat16(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

/* Pixels stay beside each other, their channels too. */
static ALWAYS_INLINE void to_channels_last(const struct normalizing *how, const uint8_t *from, size_t num_pixels,
                                           float *floats, uint16_t *halves) {
    float shift[STRIDE], scale[STRIDE];
    for (size_t i = 0; i < STRIDE; i++)
        shift[i] = how->shift[i % 3], scale[i] = how->scale[i % 3];
    size_t length = 3 * num_pixels, i = 0;
    for (; i + STRIDE <= length; i += STRIDE)
        for (size_t j = 0; j < STRIDE; j++) {
            float value = ((float)from[i + j] - shift[j]) * scale[j];
            if (floats)
                floats[i + j] = value;
            else
                halves[i + j] = to_bfloat16(value);
        }
    for (size_t j = 0; i + j < length; j++) {
        float value = ((float)from[i + j] - shift[j]) * scale[j];
        if (floats)
            floats[i + j] = value;
        else
            halves[i + j] = to_bfloat16(value);
    }
}

/* One plane of one picture. */
static ALWAYS_INLINE void to_plane(const struct normalizing *how, int channel, const uint8_t *from, size_t num_pixels,
                                   float *floats, uint16_t *halves) {
    float shift = how->shift[channel], scale = how->scale[channel];
    for (size_t i = 0; i < num_pixels; i++) {
        float value = ((float)from[3 * i + channel] - shift) * scale;
        if (floats)
            floats[i] = value;
        else
            halves[i] = to_bfloat16(value);
    }
}

static ALWAYS_INLINE void normalize(const struct normalizing *how, const uint8_t *from, float *floats,
                                    uint16_t *halves) {
    size_t num_pixels = how->num_pixels;
    if (how->channels_last) {
        to_channels_last(how, from, how->num_pictures * num_pixels, floats, halves);
        return;
    }
    for (size_t plane = 0; plane < 3 * how->num_pictures; plane++) {
        size_t at = plane * num_pixels;
        to_plane(how, (int)(plane % 3), from + 3 * (plane / 3) * num_pixels, num_pixels, floats ? floats + at : NULL,
                 floats ? NULL : halves + at);
    }
}

static ALWAYS_INLINE void normalize_either(const struct normalizing *how, const uint8_t *from, void *to) {
    if (how->halves)
        normalize(how, from, NULL, to);
    else
        normalize(how, from, to, NULL);
}

#ifdef HAS_AVX2
WITH_AVX2 static void normalize_avx2(const struct normalizing *how, const uint8_t *from, void *to) {
    normalize_either(how, from, to);
}
#endif

/* Write floats, or bfloat16s, of all pixels: pictures one after the other, each as pixels or as planes. */
void normalize_pictures(const struct normalizing *how, const uint8_t *from, void *to) {
#ifdef HAS_AVX2
    if (__builtin_cpu_supports("avx2")) {
        normalize_avx2(how, from, to);
        return;
    }
#endif
    normalize_either(how, from, to);
}
