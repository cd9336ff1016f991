/* Decode the units of a scan in the place of libjpeg-turbo's entropy decoder: those that a box needs; the way past
 * others; and nothing of intervals between restart markers that the box does not touch, or behind its last unit.
 */
#include <stdio.h>
#include <stdlib.h>

#include <jpeglib.h>

#include "units.h"

static bool add_tables(struct units *units, const struct jpeg_decompress_struct *jpeg) {
    bool has_dc[NUM_HUFF_TBLS] = {false}, has_ac[NUM_HUFF_TBLS] = {false};
    units->num_blocks = jpeg->blocks_in_MCU;
    for (int i = 0; i < units->num_blocks; i++) {
        int component = jpeg->MCU_membership[i];
        int dc = jpeg->cur_comp_info[component]->dc_tbl_no, ac = jpeg->cur_comp_info[component]->ac_tbl_no;
        const JHUFF_TBL *for_dc = jpeg->dc_huff_tbl_ptrs[dc], *for_ac = jpeg->ac_huff_tbl_ptrs[ac];
        if (for_dc == NULL || for_ac == NULL)
            return false;
        if (!has_dc[dc])
            make_table(&units->dc_tables[dc], for_dc->bits, for_dc->huffval, true);
        if (!has_ac[ac])
            make_table(&units->ac_tables[ac], for_ac->bits, for_ac->huffval, false);
        has_dc[dc] = has_ac[ac] = true;
        units->codings[i] = (struct coding){&units->dc_tables[dc], &units->ac_tables[ac], component};
    }
    return true;
}

/* Begin a scan whose tables libjpeg has checked. wanted: pixels. False: not a scan for this decoder. */
bool begin_units(struct units *units, const struct jpeg_decompress_struct *jpeg, const struct layout *layout,
                 struct rectangle wanted) {
    units->across = (int)jpeg->MCUs_per_row;
    units->wanted = (struct rectangle){wanted.left / layout->mcu_width, wanted.top / layout->mcu_height,
                                       (wanted.right + layout->mcu_width - 1) / layout->mcu_width,
                                       (wanted.bottom + layout->mcu_height - 1) / layout->mcu_height};
    units->row = units->column = 0;
    units->next = units->interval_end = 0;
    begin_bits(&units->bits, units->data + layout->scan, units->data + units->size);
    return add_tables(units, jpeg);
}

static void begin_interval(struct units *units) {
    const struct intervals *intervals = &units->intervals;
    units->interval_end = units->next + intervals->units;
    units->dc[0] = units->dc[1] = units->dc[2] = 0;
    if (intervals->starts) {
        const size_t *start = intervals->starts + units->next / intervals->units;
        begin_bits(&units->bits, units->data + start[0], units->data + start[1] - 2);
    }
}

/* Return the first unit at or behind the next one that the box touches; SIZE_MAX: there is none. */
static size_t next_wanted(const struct units *units) {
    const struct rectangle *wanted = &units->wanted;
    int row = units->row, column = units->column;
    if (row < wanted->top)
        row = wanted->top, column = 0;
    if (column >= wanted->right)
        row++, column = 0;
    if (row >= wanted->bottom)
        return SIZE_MAX;
    return (size_t)row * (size_t)units->across + (size_t)(column < wanted->left ? wanted->left : column);
}

/* Give libjpeg the next unit: its coefficients where the box needs it, else whatever `blocks` holds.
 * False: the picture is damaged before or in a unit that is needed.
 */
bool next_unit(struct units *units, JBLOCKROW *blocks) {
    if (units->next == units->interval_end)
        begin_interval(units);
    size_t wanted = next_wanted(units);
    bool is_whole = true;
    if (wanted < units->interval_end) {
        int16_t *to[D_MAX_BLOCKS_IN_MCU];
        bool unpacks = wanted == units->next && blocks != NULL;
        for (int i = 0; unpacks && i < units->num_blocks; i++)
            to[i] = *blocks[i];
        is_whole = unpack_unit(&units->bits, units->codings, units->num_blocks, units->dc, unpacks ? to : NULL) &&
                   bits_were_there(&units->bits);
    }
    units->next++;
    if (++units->column == units->across)
        units->column = 0, units->row++;
    return is_whole;
}

/* What is left of the scan was not decoded, but a cut picture is refused all the same: look for its end. */
bool rest_of_units_is_whole(const struct units *units) {
    return units->intervals.starts ||
           scan_is_whole(units->data, units->size, (size_t)(units->bits.at - units->data));
}
