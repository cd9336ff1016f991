/* Walk the markers of a JPEG (ITU-T T.81, annex B) and cut one at its restart markers. Strict: see kernel.h. */
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

static int units_across(const struct layout *layout) {
    return (layout->width + layout->mcu_width - 1) / layout->mcu_width;
}

static int units_down(const struct layout *layout) {
    return (layout->height + layout->mcu_height - 1) / layout->mcu_height;
}

/* How the intervals between restart markers tile the picture: each covers interval_width x interval_height pixels. */
struct grid {
    int across, down;
    int interval_width, interval_height;
};

/* False: intervals end within rows. */
static bool make_grid(const struct layout *layout, struct grid *grid) {
    int interval = (int)layout->restart_interval;
    int units = units_across(layout), unit_rows = units_down(layout);
    if (units % interval == 0) {
        *grid = (struct grid){units / interval, unit_rows, interval * layout->mcu_width, layout->mcu_height};
        return true;
    }
    if (interval % units)
        return false;
    int rows = interval / units;
    *grid = (struct grid){1, (unit_rows + rows - 1) / rows, units * layout->mcu_width, rows * layout->mcu_height};
    return true;
}

/* Note where each interval starts; starts[num] is past the end marker. False: not `num` intervals in their order. */
static bool find_intervals(const uint8_t *data, size_t size, size_t from, size_t *starts, size_t num) {
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

static void write_16(uint8_t *at, int value) {
    at[0] = (uint8_t)(value >> 8);
    at[1] = (uint8_t)value;
}

static int min_int(int a, int b) { return a < b ? a : b; }

/* Copy the header and the intervals of `box` (counted in intervals), restart markers numbered anew. */
static enum kernel_status copy_intervals(const uint8_t *data, const struct layout *layout, const struct grid *grid,
                                         struct rectangle box, const size_t *starts, struct cutting *cutting) {
    size_t room = layout->scan;
    for (int row = box.top; row < box.bottom; row++) {
        const size_t *first = starts + (size_t)row * grid->across;
        room += first[box.right] - first[box.left];
    }
    uint8_t *to = malloc(room);
    if (to == NULL)
        return KERNEL_NO_MEMORY;
    cutting->data = to;
    cutting->left = box.left * grid->interval_width;
    cutting->top = box.top * grid->interval_height;
    memcpy(to, data, layout->scan);
    write_16(to + layout->sof + 5, min_int(layout->height, box.bottom * grid->interval_height) - cutting->top);
    write_16(to + layout->sof + 7, min_int(layout->width, box.right * grid->interval_width) - cutting->left);
    to += layout->scan;
    int number = 0;
    for (int row = box.top; row < box.bottom; row++) {
        const size_t *first = starts + (size_t)row * grid->across;
        for (int column = box.left; column < box.right; column++) {
            size_t length = first[column + 1] - first[column];
            memcpy(to, data + first[column], length);
            to += length;
            to[-1] = (uint8_t)(RST0 + (number++ & 7));
        }
    }
    to[-1] = EOI;
    cutting->size = (size_t)(to - cutting->data);
    return KERNEL_DONE;
}

/* Cut the intervals that `wanted` touches out of `data`. cutting->data stays NULL where that saves nothing. */
static enum kernel_status cut(const uint8_t *data, const struct layout *layout, struct rectangle wanted,
                              const size_t *starts, struct cutting *cutting) {
    struct grid grid;
    if (!make_grid(layout, &grid))
        return KERNEL_DONE;
    struct rectangle box = {
        wanted.left / grid.interval_width, wanted.top / grid.interval_height,
        min_int(grid.across, (wanted.right + grid.interval_width - 1) / grid.interval_width),
        min_int(grid.down, (wanted.bottom + grid.interval_height - 1) / grid.interval_height)};
    if (box.top == 0 && box.left == 0 && box.right == grid.across)
        return KERNEL_DONE; /* below the box nothing is unpacked anyway */
    return copy_intervals(data, layout, &grid, box, starts, cutting);
}

/* Look for the restart markers, and cut at them if all are there, in order, with nothing else between. */
enum kernel_status cut_at_restarts(const uint8_t *data, size_t size, const struct layout *layout,
                                   struct rectangle wanted, struct cutting *cutting) {
    *cutting = (struct cutting){NULL, 0, 0, 0, false};
    if (!layout->one_scan || layout->restart_interval == 0)
        return KERNEL_DONE;
    size_t units = (size_t)units_across(layout) * (size_t)units_down(layout);
    size_t num = (units + layout->restart_interval - 1) / layout->restart_interval;
    if (num > size / 2) /* an interval has its marker of two bytes */
        return KERNEL_DONE;
    size_t *starts = malloc((num + 1) * sizeof *starts);
    if (starts == NULL)
        return KERNEL_NO_MEMORY;
    enum kernel_status status = KERNEL_DONE;
    cutting->in_order = find_intervals(data, size, layout->scan, starts, num);
    if (cutting->in_order)
        status = cut(data, layout, wanted, starts, cutting);
    free(starts);
    return status;
}
