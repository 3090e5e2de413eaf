/* JPEG (ITU T.81), part 1 of 3: what a file holds, bits, Huffman codes, and blocks of coefficients. */
#include <stdint.h>
#include <string.h>

enum { JPEG_COMPONENTS = 4, JPEG_QUICK = 9, JPEG_STATE = 16384, JPEG_LARGEST = 65500 };

/* One Huffman table. `quick` holds length << 8 | symbol by the next bits, 0 for a longer code. `limit` is by length the
 * first code, in 16 bits, that is longer; `offset` leads from a code of that length to its symbol. */
typedef struct jpeg_codes {
    uint16_t quick[1 << JPEG_QUICK];
    int32_t limit[17], offset[17];
    uint8_t symbols[256];
    int there, largest;
} jpeg_codes;

/* Bits of entropy-coded data, the next one on top of `word`; `left` of them are valid, and fewer than none in damaged
 * data. */
typedef struct jpeg_bits {
    const uint8_t *bytes;
    int64_t at, count;
    uint64_t word;
    int left;
} jpeg_bits;

/* One component: its blocks as the image has them (wide x high) and as they are stored (`stride` in a row), its
 * samples, and by coefficient (in zigzag order) how many of its low bits are not known yet, -1 for all of them. */
typedef struct jpeg_component {
    int id, across, down, quantizer, quantized;
    int64_t wide, high, stride, width, height;
    int16_t *coefficients;
    const uint8_t *samples;
    const jpeg_codes *dc, *ac;
    uint32_t predicted;
    uint16_t steps[64];
    int8_t unknown[64];
} jpeg_component;

/* A file. `scan` are the `scanned` components of the scan that is read: coefficients first..last without their `low`
 * lowest bits, of which `high` were unknown before; the next `empty` blocks have none. `interval` is that of restart
 * markers. */
typedef struct jpeg_file {
    jpeg_bits bits;
    int64_t height, width, across, down, interval;
    int progressive, components, jfif, adobe, ycc;
    int first, last, high, low, scanned;
    uint32_t empty;
    jpeg_component component[JPEG_COMPONENTS], *scan[JPEG_COMPONENTS];
    int quantizer_there[4];
    uint16_t quantizer[4][64];
    jpeg_codes codes[2][4];
} jpeg_file;

_Static_assert(sizeof(jpeg_file) <= JPEG_STATE, "The state of a decoder has its place in scratch memory.");

static const uint8_t jpeg_zigzag[64] = {
    0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,  12, 19, 26, 33, 40, 48,
    41, 34, 27, 20, 13, 6,  7,  14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23,
    30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63,
};

/* Fill up to at least 57 bits, unless a marker or the end of the file comes first. Bits behind those are 0. */
static void jpeg_fill(jpeg_bits *b) {
    if (b->left < 0) return;
    while (b->left <= 56 && b->at < b->count) {
        const uint8_t byte = b->bytes[b->at];
        int64_t next = b->at + 1;
        if (byte == 0xFF) {
            while (next < b->count && b->bytes[next] == 0xFF) next++;
            if (next == b->count || b->bytes[next]) return;
            next++;
        }
        b->word |= (uint64_t)byte << (56 - b->left);
        b->left += 8;
        b->at = next;
    }
}

static inline void jpeg_drop(jpeg_bits *b, int n) {
    b->word <<= n;
    b->left -= n;
}

/* Read n bits, 1 to 16, as an unsigned number. */
static inline int jpeg_get(jpeg_bits *b, int n) {
    if (b->left < n) jpeg_fill(b);
    const int value = (int)(b->word >> (64 - n));
    jpeg_drop(b, n);
    return value;
}

/* Read a number of n bits, 1 to 15, in the code of T.81, table F.1: what begins with 0 is negative. */
static inline int jpeg_signed(jpeg_bits *b, int n) {
    const int value = jpeg_get(b, n);
    return value >> (n - 1) ? value : value - (1 << n) + 1;
}

/* Read the symbol of a Huffman code. */
static inline int jpeg_symbol(jpeg_bits *b, const jpeg_codes *codes) {
    if (b->left < 32) jpeg_fill(b);
    const int entry = codes->quick[b->word >> (64 - JPEG_QUICK)];
    if (entry) {
        jpeg_drop(b, entry >> 8);
        return entry & 255;
    }
    const int32_t code = (int32_t)(b->word >> 48);
    int length = JPEG_QUICK + 1;
    while (length <= 16 && code >= codes->limit[length]) length++;
    if (length > 16) {
        b->left = -1;
        return 0;
    }
    jpeg_drop(b, length);
    return codes->symbols[(code >> (16 - length)) + codes->offset[length]];
}

/* Make a table of the number of codes by length and of their symbols. Returns 1 if these make no code. */
static int jpeg_make_codes(jpeg_codes *codes, const uint8_t *lengths, const uint8_t *symbols, int count) {
    memset(codes, 0, sizeof *codes);
    memcpy(codes->symbols, symbols, (size_t)count);
    codes->there = 1;
    int32_t code = 0;
    for (int length = 1, k = 0; length <= 16; length++) {
        codes->offset[length] = k - code;
        for (int end = k + lengths[length - 1]; k < end; k++, code++) {
            if (codes->largest < symbols[k]) codes->largest = symbols[k];
            if (code + 1 >= 1 << length) return 1; /* ones alone are no code */
            if (length > JPEG_QUICK) continue;
            const int copies = 1 << (JPEG_QUICK - length);
            for (int j = 0; j < copies; j++) codes->quick[code * copies + j] = (uint16_t)(length << 8 | symbols[k]);
        }
        codes->limit[length] = code << (16 - length);
        code <<= 1;
    }
    return 0;
}

/* The next difference of the DC coefficient. Differences add up modulo 2^32, so that no file makes them overflow. */
static inline uint32_t jpeg_dc(jpeg_bits *b, jpeg_component *c) {
    const int size = jpeg_symbol(b, c->dc);
    if (size) c->predicted += (uint32_t)jpeg_signed(b, size);
    return c->predicted;
}

/* Read one block of a scan. Returns 1 if the data is damaged. */
typedef int jpeg_reader(jpeg_file *f, jpeg_component *c, int16_t *block);

static int jpeg_sequential_block(jpeg_file *f, jpeg_component *c, int16_t *block) {
    jpeg_bits *b = &f->bits;
    block[0] = (int16_t)jpeg_dc(b, c);
    for (int k = 1; k < 64; k++) {
        const int symbol = jpeg_symbol(b, c->ac), size = symbol & 15;
        if (!size && symbol < 0xF0) break;
        k += symbol >> 4;
        if (!size) continue;
        if (k > 63) return 1;
        block[jpeg_zigzag[k]] = (int16_t)jpeg_signed(b, size);
    }
    return b->left < 0;
}

static int jpeg_first_dc(jpeg_file *f, jpeg_component *c, int16_t *block) {
    block[0] = (int16_t)(jpeg_dc(&f->bits, c) << f->low);
    return f->bits.left < 0;
}

static int jpeg_refined_dc(jpeg_file *f, jpeg_component *c, int16_t *block) {
    (void)c;
    if (jpeg_get(&f->bits, 1)) block[0] = (int16_t)(block[0] | 1 << f->low);
    return f->bits.left < 0;
}

/* Read how many blocks, this one among them, end here. */
static uint32_t jpeg_run(jpeg_bits *b, int size) {
    return (1u << size) + (size ? (uint32_t)jpeg_get(b, size) : 0);
}

static int jpeg_first_ac(jpeg_file *f, jpeg_component *c, int16_t *block) {
    jpeg_bits *b = &f->bits;
    if (f->empty) {
        f->empty--;
        return 0;
    }
    for (int k = f->first; k <= f->last; k++) {
        const int symbol = jpeg_symbol(b, c->ac), size = symbol & 15;
        if (!size && symbol < 0xF0) {
            f->empty = jpeg_run(b, symbol >> 4) - 1;
            break;
        }
        k += symbol >> 4;
        if (!size) continue;
        if (k > f->last) return 1;
        block[jpeg_zigzag[k]] = (int16_t)(jpeg_signed(b, size) * (1 << f->low));
    }
    return b->left < 0;
}

/* Refine the coefficients from k on that are not 0, up to the one behind `zeros` that are. Returns where that is. */
static int jpeg_refine(jpeg_file *f, int16_t *block, int k, int zeros) {
    const int bit = 1 << f->low;
    for (; k <= f->last; k++) {
        int16_t *value = block + jpeg_zigzag[k];
        if (!*value) {
            if (zeros-- == 0) break;
        } else if (jpeg_get(&f->bits, 1) && !(*value & bit)) {
            *value = (int16_t)(*value < 0 ? *value - bit : *value + bit);
        }
    }
    return k;
}

static int jpeg_refined_ac(jpeg_file *f, jpeg_component *c, int16_t *block) {
    jpeg_bits *b = &f->bits;
    int k = f->first;
    while (!f->empty && k <= f->last) {
        const int symbol = jpeg_symbol(b, c->ac), size = symbol & 15;
        int value = 0;
        if (size > 1) return 1;
        if (size) value = jpeg_get(b, 1) ? 1 << f->low : -(1 << f->low);
        else if (symbol < 0xF0) {
            f->empty = jpeg_run(b, symbol >> 4);
            break;
        }
        k = jpeg_refine(f, block, k, symbol >> 4);
        if (value) {
            if (k > f->last) return 1;
            block[jpeg_zigzag[k]] = (int16_t)value;
        }
        k++;
    }
    if (f->empty) {
        jpeg_refine(f, block, k, 64);
        f->empty--;
    }
    return b->left < 0;
}
