/* Walk the markers of a JPEG (ITU-T T.81, annex B), and find its restart markers. Strict: see kernel.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernel.h"

enum {
    SOF0 = 0xC0, SOF1 = 0xC1, SOF2 = 0xC2, DHT = 0xC4, RST0 = 0xD0, RST7 = 0xD7, SOI = 0xD8, EOI = 0xD9, SOS = 0xDA,
    DQT = 0xDB, DRI = 0xDD, APP0 = 0xE0, APP2 = 0xE2, APP13 = 0xED, APP14 = 0xEE, APP15 = 0xEF, COM = 0xFE
};

static enum kernel_status other(struct reason *reason, const char *text, int detail) {
    snprintf(reason->text, sizeof reason->text, text, detail);
    return KERNEL_OTHER;
}

static unsigned read_16(const uint8_t *at) { return (unsigned)at[0] << 8 | at[1]; }

static bool begins(const uint8_t *body, size_t size, const char *with) {
    size_t length = strlen(with);
    return size >= length && memcmp(body, with, length) == 0;
}

/* Say whether Pillow's header reader may stumble over, or read a second picture from, a segment libjpeg skips. */
static bool is_odd_app(int marker, const uint8_t *body, size_t size) {
    switch (marker) {
    case APP0:
        return begins(body, size, "JFIF") && size < 14;
    case APP2:
        return (begins(body, size, "MPF") || (begins(body, size, "ICC_PROFILE") && size < 14));
    case APP13: /* a resource block that ends after its number */
        return size >= 6 && memcmp(body + size - 6, "8BIM", 4) == 0;
    case APP14:
        return begins(body, size, "Adobe") && size < 12;
    default:
        return false;
    }
}

static bool is_usual_sampling(const uint8_t *components, int num_components) {
    int across = components[1] >> 4, down = components[1] & 15;
    if (num_components == 1) /* they mean nothing there */
        return across >= 1 && across <= 4 && down >= 1 && down <= 4;
    bool chroma_is_1x1 = components[4] == 0x11 && components[7] == 0x11;
    return chroma_is_1x1 && (across == 1 || across == 2 || across == 4) && (down == 1 || down == 2);
}

static enum kernel_status read_frame(const uint8_t *body, size_t size, struct layout *layout, struct reason *reason) {
    if (layout->sof)
        return other(reason, "two frame headers", 0);
    if (size < 6)
        return other(reason, "a short frame header", 0);
    int num_components = body[5];
    if (body[0] != 8)
        return other(reason, "%d bits a sample", body[0]);
    if (num_components != 1 && num_components != 3)
        return other(reason, "%d components", num_components);
    if (size != 6 + 3 * (size_t)num_components)
        return other(reason, "a frame header of odd length", 0);
    if (!is_usual_sampling(body + 6, num_components))
        return other(reason, "unusual sampling factors", 0);
    layout->height = (int)read_16(body + 1);
    layout->width = (int)read_16(body + 3);
    if (layout->width == 0 || layout->height == 0)
        return other(reason, "a side of 0 pixels", 0);
    layout->num_components = num_components;
    layout->mcu_width = num_components == 1 ? 8 : 8 * (body[7] >> 4);
    layout->mcu_height = num_components == 1 ? 8 : 8 * (body[7] & 15);
    return KERNEL_DONE;
}

/* Fill in the layout up to the first scan. KERNEL_OTHER: no JPEG, or one with anything unusual before its pixels. */
enum kernel_status read_layout(const uint8_t *data, size_t size, struct layout *layout, struct reason *reason) {
    memset(layout, 0, sizeof *layout);
    if (size < 4 || data[0] != 0xFF || data[1] != SOI)
        return other(reason, "not a JPEG", 0);
    for (size_t at = 2;;) {
        if (size - at < 4 || data[at] != 0xFF)
            return other(reason, "no marker where one must be", 0);
        int marker = data[at + 1];
        size_t length = read_16(data + at + 2);
        if (length < 2 || length > size - at - 2)
            return other(reason, "marker 0x%02X is cut", marker);
        const uint8_t *body = data + at + 4;
        size_t body_size = length - 2;
        size_t next = at + 2 + length;
        if (marker == SOF0 || marker == SOF1 || marker == SOF2) {
            enum kernel_status status = read_frame(body, body_size, layout, reason);
            if (status != KERNEL_DONE)
                return status;
            layout->sof = at;
            layout->progressive = marker == SOF2;
        } else if (marker == DRI && body_size == 2) {
            layout->restart_interval = read_16(body);
        } else if (marker == SOS && layout->sof && body_size >= 1) {
            layout->one_scan = !layout->progressive && body[0] == layout->num_components;
            layout->scan = next;
            return KERNEL_DONE;
        } else if ((marker >= APP0 && marker <= APP15) || marker == COM) {
            if (is_odd_app(marker, body, body_size))
                return other(reason, "an unusual segment 0x%02X", marker);
        } else if (marker != DHT && marker != DQT) {
            return other(reason, "marker 0x%02X", marker);
        }
        at = next;
    }
}

/* Return the offset of the next marker's 0xFF at or after `at`, stuffed bytes passed over; `size` if there is none. */
static size_t next_marker(const uint8_t *data, size_t size, size_t at) {
    while (at < size) {
        const uint8_t *found = memchr(data + at, 0xFF, size - at);
        if (found == NULL || (size_t)(found - data) + 1 >= size)
            return size;
        at = (size_t)(found - data);
        if (data[at + 1] != 0)
            return at;
        at += 2;
    }
    return size;
}

static bool is_restart(int marker) { return marker >= RST0 && marker <= RST7; }

/* Say whether the packed pixels from `from` on end with the picture's end marker and hold none but restart markers. */
bool scan_is_whole(const uint8_t *data, size_t size, size_t from) {
    for (size_t at = next_marker(data, size, from); at < size; at = next_marker(data, size, at + 2))
        if (!is_restart(data[at + 1]))
            return data[at + 1] == EOI;
    return false;
}

/* Note where each interval starts; starts[num] is past the end marker. False: not `num` intervals in their order. */
static bool note_starts(const uint8_t *data, size_t size, size_t from, size_t *starts, size_t num) {
    size_t found = 0;
    starts[0] = from;
    for (size_t at = next_marker(data, size, from); at < size; at = next_marker(data, size, at + 2)) {
        int marker = data[at + 1];
        starts[++found] = at + 2;
        if (marker == EOI)
            return found == num;
        if (marker != RST0 + (int)((found - 1) & 7) || found == num)
            return false;
    }
    return false;
}

/* Look for the restart markers: all there, in order, with nothing else between, and the end marker behind. */
enum kernel_status find_intervals(const uint8_t *data, size_t size, const struct layout *layout,
                                  struct intervals *intervals) {
    size_t across = ((size_t)layout->width + layout->mcu_width - 1) / layout->mcu_width;
    size_t units = across * (((size_t)layout->height + layout->mcu_height - 1) / layout->mcu_height);
    *intervals = (struct intervals){units, 1, NULL};
    if (!layout->one_scan || layout->restart_interval == 0)
        return KERNEL_DONE;
    size_t num = (units + layout->restart_interval - 1) / layout->restart_interval;
    if (num > size / 2) /* an interval has its marker of two bytes */
        return KERNEL_DONE;
    size_t *starts = malloc((num + 1) * sizeof *starts);
    if (starts == NULL)
        return KERNEL_NO_MEMORY;
    if (note_starts(data, size, layout->scan, starts, num))
        *intervals = (struct intervals){layout->restart_interval, num, starts};
    else
        free(starts);
    return KERNEL_DONE;
}
