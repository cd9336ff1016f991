/* The decoder of units.c, for decode.c. jpeglib.h comes first. */
#ifndef WDSLOADER_UNITS_H
#define WDSLOADER_UNITS_H

#include "kernel.h"

/* A scan that is decoded in libjpeg's stead. */
struct units {
    const uint8_t *data; /* the picture */
    size_t size;
    struct intervals intervals;
    struct rectangle wanted; /* in units */
    int across;              /* units a row */
    int row, column;         /* of the next unit */
    size_t next;             /* its number */
    size_t interval_end;     /* the number behind the interval's last */
    struct bits bits;
    uint32_t dc[3];
    int num_blocks;
    struct coding codings[D_MAX_BLOCKS_IN_MCU];
    struct huffman_table dc_tables[NUM_HUFF_TBLS], ac_tables[NUM_HUFF_TBLS];
};

bool begin_units(struct units *units, const struct jpeg_decompress_struct *jpeg, const struct layout *layout,
                 struct rectangle wanted);
bool next_unit(struct units *units, JBLOCKROW *blocks);
bool rest_of_units_is_whole(const struct units *units);

#endif
