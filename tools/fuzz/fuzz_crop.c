/* Fuzz the crop kernel: any bytes, any box. libFuzzer, with AddressSanitizer and UndefinedBehaviorSanitizer.
 *
 *   python tools/fuzz/make_crop_corpus.py /tmp/corpus
 *   clang -g -O1 -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all -D_GNU_SOURCE \
 *       -Ipackages/wdsloader/src/kernel tools/fuzz/fuzz_crop.c \
 *       packages/wdsloader/src/kernel/{layout,resample,huffman,units,decode,restarts}.c -ljpeg -lm -o /tmp/fuzz_crop
 *   /tmp/fuzz_crop -max_total_time=600 -max_len=20000 /tmp/corpus
 *
 * The last 12 bytes of an input choose the box, the output and the options; the rest is the picture. Beside crashes it
 * looks for: an output written outside of its slot (the slot is a block of its own), and a picture that comes out
 * otherwise once restart markers are in it.
 */
#include <stdlib.h>
#include <string.h>

#include "kernel.h"

#define NUM_CHOICES 12
/* Larger pictures are valid, but slow; what they can break, smaller ones break. */
#define MAX_PIXELS (1 << 21)

static double share(const uint8_t *choices) { return (choices[0] << 8 | choices[1]) / 65535.0; }

static struct crop choose(const uint8_t *choices, const struct layout *layout) {
    struct crop crop = {.flip = choices[8] & 1, .dct_scaling = choices[8] & 2};
    bool whole = choices[8] & 4;
    crop.width = 0.01 + share(choices) * (layout->width - 0.01);
    crop.height = 0.01 + share(choices + 2) * (layout->height - 0.01);
    crop.x = share(choices + 4) * (layout->width - crop.width);
    crop.y = share(choices + 6) * (layout->height - crop.height);
    if (whole) {
        crop.x = (int)crop.x, crop.y = (int)crop.y;
        crop.width = (int)crop.width + 1, crop.height = (int)crop.height + 1;
    }
    crop.out_width = 1 + choices[9] % 64;
    crop.out_height = 1 + choices[10] % 64;
    return crop;
}

static enum kernel_status crop_into_new(const uint8_t *data, size_t size, struct crop *crop, struct reason *reason) {
    crop->out = calloc((size_t)crop->out_width * crop->out_height, 3);
    enum kernel_status status = crop_picture(data, size, crop, reason);
    if (status != KERNEL_DONE && memchr(reason->text, 0, sizeof reason->text) == NULL)
        abort();
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct layout layout;
    struct reason reason = {""};
    if (size < NUM_CHOICES)
        return 0;
    size -= NUM_CHOICES;
    if (read_layout(data, size, &layout, &reason) != KERNEL_DONE || (int64_t)layout.width * layout.height > MAX_PIXELS)
        return 0;
    const uint8_t *choices = data + size;
    struct crop crop = choose(choices, &layout), again = crop;
    enum kernel_status status = crop_into_new(data, size, &crop, &reason);

    uint8_t *marked = NULL;
    size_t marked_size = 0;
    if (insert_restarts(data, size, 1 + choices[11] % 4, &marked, &marked_size, &reason) == KERNEL_DONE) {
        enum kernel_status marked_status = crop_into_new(marked, marked_size, &again, &reason);
        bool both = status == KERNEL_DONE && marked_status == KERNEL_DONE;
        if (both && memcmp(crop.out, again.out, 3 * (size_t)crop.out_width * crop.out_height) != 0)
            abort();
        free(again.out);
        free(marked);
    }
    free(crop.out);
    return 0;
}
