/* Decode the Huffman codes of sequential JPEGs (ITU-T T.81, annex F.2): blocks of coefficients, or nothing but the way
 * past them. About twice as fast as libjpeg-turbo's decoder, which is where most of a crop's time goes: one look at the
 * bits tells a code, its length and that of its value, and no branch but the end of a block hangs on what was read.
 * Strict: whatever libjpeg would mend or warn of is false, and the picture Pillow's.
 */
#include <string.h>

#include "kernel.h"

#if defined(__GNUC__)
#define RARELY(condition) __builtin_expect(!!(condition), 0)
#else
#define RARELY(condition) (condition)
#endif

/* What one code says, packed into a number: 0 is no code. */
#define LENGTH(entry) ((entry) & 0xFF)              /* bits of the code and its value together */
#define CODE_LENGTH(entry) ((entry) >> 8 & 0xFF)    /* bits of the code */
#define VALUE_LENGTH(entry) ((entry) >> 16 & 0xFF)  /* bits of the value */
#define ZEROS(entry) ((entry) >> 24)                /* coefficients to pass over before the value's */

#define SKIP_LENGTH(skip) ((skip) & 0xFF)
#define SKIP_PASSED(skip) ((skip) >> 8 & 0x3F)
#define SKIP_ENDS 0x8000

#define BLOCK 64
/* As many zeros as an end of block stands for: more than any run, so that the place tells what led there. */
#define TO_THE_END 127
#define ZERO_RUN 0xF0

/* The longest code and value: as many bits must be there to decode one. */
#define LONGEST 31

/* Where the coefficient k in the order of the codes belongs. Places past the end, from an end of block, are 63's, which
 * is 0 then. */
static const uint8_t NATURAL[BLOCK + TO_THE_END] = {
    0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,  12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13, 6,
    7,  14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46,
    53, 60, 61, 54, 47, 55, 62, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63,
    63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63,
    63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63,
    63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63,
    63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63};

static uint32_t entry_of(int symbol, int length, bool is_dc) {
    int value = symbol & 15;
    int zeros = is_dc ? 0 : value || symbol == ZERO_RUN ? symbol >> 4 : TO_THE_END;
    return (uint32_t)(length + value) | (uint32_t)length << 8 | (uint32_t)value << 16 | (uint32_t)zeros << 24;
}

/* Note for any SKIP_BITS bits what codes stand in them whole, up to the end of a block: their bits, with their values',
 * in the lowest byte; the coefficients that they are or pass over, at most 63, above; and whether a block ends.
 */
static void fill_skips(struct huffman_table *table) {
    for (uint32_t bits = 0; bits < 1 << SKIP_BITS; bits++) {
        uint32_t length = 0, passed = 0, ends = 0;
        while (!ends) {
            uint32_t left = bits << length & ((1 << SKIP_BITS) - 1);
            uint32_t entry = table->entries[left >> (SKIP_BITS - LOOK_BITS)];
            bool is_end = ZEROS(entry) == TO_THE_END;
            if (entry == 0 || length + LENGTH(entry) > SKIP_BITS || (!is_end && passed + ZEROS(entry) + 1 >= BLOCK))
                break;
            length += LENGTH(entry);
            if (is_end)
                ends = SKIP_ENDS;
            else
                passed += ZEROS(entry) + 1;
        }
        table->skips[bits] = (uint16_t)(length | passed << 8 | ends);
    }
}

/* counts[l]: codes of l bits; symbols: theirs, in order. Both as libjpeg has checked them. */
void make_table(struct huffman_table *table, const uint8_t counts[17], const uint8_t symbols[256], bool is_dc) {
    memset(table->entries, 0, sizeof table->entries);
    table->is_dc = is_dc;
    uint32_t code = 0; /* the next one, 16 bits from the left */
    int symbol = 0;
    for (int length = 1; length <= 16; length++) {
        table->first[length] = symbol - (int)(code >> (16 - length));
        for (int i = 0; i < counts[length]; i++, symbol++, code += 1u << (16 - length)) {
            table->symbols[symbol] = symbols[symbol];
            if (length > LOOK_BITS)
                continue;
            uint32_t entry = entry_of(symbols[symbol], length, is_dc);
            uint32_t *to = table->entries + (code >> (16 - LOOK_BITS));
            for (int j = 0; j < 1 << (LOOK_BITS - length); j++)
                to[j] = entry;
        }
        table->limit[length] = code;
    }
    if (!is_dc)
        fill_skips(table);
}

void begin_bits(struct bits *bits, const uint8_t *at, const uint8_t *end) {
    *bits = (struct bits){at, end, 0, 0, 0};
}

/* False: more was decoded than there were bits before the next marker. */
bool bits_were_there(const struct bits *bits) { return bits->count >= bits->made_up; }

/* Byte by byte: over stuffed ones, and up to a marker or the end, behind which there are zeros. */
static void refill_slowly(struct bits *bits) {
    while (bits->count <= 56) {
        uint64_t byte = 0;
        if (bits->at < bits->end && *bits->at != 0xFF) {
            byte = *bits->at++;
        } else if (bits->end - bits->at >= 2 && bits->at[1] == 0) {
            byte = 0xFF;
            bits->at += 2;
        } else {
            bits->made_up += 8;
        }
        bits->next |= byte << (56 - bits->count);
        bits->count += 8;
    }
}

static uint64_t first_8(const uint8_t *at) {
    uint64_t bytes;
    memcpy(&bytes, at, sizeof bytes);
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    return __builtin_bswap64(bytes);
#else
    bytes = 0;
    for (int i = 0; i < 8; i++)
        bytes = bytes << 8 | at[i];
    return bytes;
#endif
}

static bool has_a_byte_of_ff(uint64_t bytes) {
    return (~bytes - 0x0101010101010101u) & bytes & 0x8080808080808080u;
}

/* Have at least LONGEST bits. What stands behind `count` of them in `next` is true as well, or 0. */
static ALWAYS_INLINE void refill(struct bits *bits) {
    if (bits->count >= LONGEST)
        return;
    if (bits->end - bits->at >= 8) {
        uint64_t bytes = first_8(bits->at);
        if (!RARELY(has_a_byte_of_ff(bytes))) {
            bits->next |= bytes >> bits->count;
            bits->at += (63 - bits->count) >> 3;
            bits->count |= 56;
            return;
        }
    }
    refill_slowly(bits);
}

static ALWAYS_INLINE void drop(struct bits *bits, uint32_t entry) {
    bits->next <<= LENGTH(entry);
    bits->count -= (int)LENGTH(entry);
}

/* A code longer than LOOK_BITS; 0 if there is none that begins so. */
static uint32_t long_code(const struct huffman_table *table, uint64_t next) {
    uint32_t bits = (uint32_t)(next >> 48);
    for (int length = LOOK_BITS + 1; length <= 16; length++)
        if (bits < table->limit[length])
            return entry_of(table->symbols[(table->first[length] + (int)(bits >> (16 - length))) & 0xFF], length,
                            table->is_dc);
    return 0;
}

static ALWAYS_INLINE uint32_t look(const struct huffman_table *table, uint64_t next) {
    uint32_t entry = table->entries[next >> (64 - LOOK_BITS)];
    return RARELY(entry == 0) ? long_code(table, next) : entry;
}

/* The value behind the code: one that begins with 0 is negative (T.81, table F.1). */
static ALWAYS_INLINE int value_of(uint32_t entry, uint64_t next) {
    uint64_t value = next << CODE_LENGTH(entry);
    uint64_t sign = (value >> 63) - 1;
    value = ((value ^ sign) >> 1) >> (63 - VALUE_LENGTH(entry));
    return (int)((value ^ sign) - sign);
}

/* Decode what a block begins with: its difference from the one before it. */
static ALWAYS_INLINE bool unpack_dc(struct bits *bits, const struct huffman_table *table, uint32_t *dc) {
    refill(bits);
    uint32_t entry = look(table, bits->next);
    *dc += (uint32_t)value_of(entry, bits->next);
    drop(bits, entry);
    return !RARELY(entry == 0);
}

static ALWAYS_INLINE bool unpack_ac(struct bits *bits, const struct huffman_table *table, int16_t *block) {
    unsigned k = 1;
    do {
        refill(bits);
        uint32_t entry = look(table, bits->next);
        if (RARELY(entry == 0))
            return false;
        k += ZEROS(entry);
        block[NATURAL[k]] = (int16_t)value_of(entry, bits->next);
        k++;
        drop(bits, entry);
    } while (k < BLOCK);
    return k == BLOCK || k > TO_THE_END;
}

static ALWAYS_INLINE bool skip_ac(struct bits *bits, const struct huffman_table *table) {
    unsigned k = 1;
    do {
        refill(bits);
        uint32_t skip = table->skips[bits->next >> (64 - SKIP_BITS)];
        if (!RARELY(skip == 0 || k + SKIP_PASSED(skip) >= BLOCK)) {
            k += SKIP_PASSED(skip);
            bits->next <<= SKIP_LENGTH(skip);
            bits->count -= (int)SKIP_LENGTH(skip);
            if (skip & SKIP_ENDS)
                return true;
        } else { /* a long code, or one that fills the block: what follows is the next block's */
            uint32_t entry = look(table, bits->next);
            if (RARELY(entry == 0))
                return false;
            k += ZEROS(entry) + 1;
            drop(bits, entry);
        }
    } while (k < BLOCK);
    return k == BLOCK || k > TO_THE_END;
}

static ALWAYS_INLINE bool unpack(struct bits *bits, const struct coding *codings, int num_blocks, uint32_t *dc,
                                 int16_t *const *blocks) {
    struct bits now = *bits;
    for (int i = 0; i < num_blocks; i++) {
        uint32_t *first = dc + codings[i].component;
        if (!unpack_dc(&now, codings[i].dc, first))
            return false;
        if (blocks)
            blocks[i][0] = (int16_t)*first;
        if (!(blocks ? unpack_ac(&now, codings[i].ac, blocks[i]) : skip_ac(&now, codings[i].ac)))
            return false;
    }
    *bits = now;
    return true;
}

static bool unpack_portable(struct bits *bits, const struct coding *codings, int num_blocks, uint32_t *dc,
                            int16_t *const *blocks) {
    return blocks ? unpack(bits, codings, num_blocks, dc, blocks) : unpack(bits, codings, num_blocks, dc, NULL);
}

#ifdef HAS_BMI2
WITH_BMI2 static bool unpack_bmi2(struct bits *bits, const struct coding *codings, int num_blocks, uint32_t *dc,
                                  int16_t *const *blocks) {
    return blocks ? unpack(bits, codings, num_blocks, dc, blocks) : unpack(bits, codings, num_blocks, dc, NULL);
}
#endif

/* Decode the blocks of one unit into `blocks`, which are zeros, or pass over them where that is NULL.
 * dc: what each component's last block began with. False: no such code, or a block of more than 64 coefficients.
 */
bool unpack_unit(struct bits *bits, const struct coding *codings, int num_blocks, uint32_t *dc,
                 int16_t *const *blocks) {
#ifdef HAS_BMI2
    if (__builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2"))
        return unpack_bmi2(bits, codings, num_blocks, dc, blocks);
#endif
    return unpack_portable(bits, codings, num_blocks, dc, blocks);
}
