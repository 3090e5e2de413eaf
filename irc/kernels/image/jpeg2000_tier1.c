/* JPEG 2000, tier 1: the bit planes of a code block (T.800 annex D) with the MQ decoder (annex C). */

/* A sample's flags: which of its neighbours are significant, the signs of four of them, and its own state. */
enum {
    JPEG2000_WEST = 1,
    JPEG2000_EAST = 2,
    JPEG2000_NORTH = 4,
    JPEG2000_SOUTH = 8,
    JPEG2000_NORTH_WEST = 16,
    JPEG2000_NORTH_EAST = 32,
    JPEG2000_SOUTH_WEST = 64,
    JPEG2000_SOUTH_EAST = 128,
    JPEG2000_NEIGHBOURS = 255,
    JPEG2000_WEST_NEGATIVE = 256,
    JPEG2000_EAST_NEGATIVE = 512,
    JPEG2000_NORTH_NEGATIVE = 1024,
    JPEG2000_SOUTH_NEGATIVE = 2048,
    JPEG2000_SIGNIFICANT = 4096,
    JPEG2000_REFINED = 8192,
    JPEG2000_VISITED = 16384
};

/* Contexts: 0 to 8 zero coding, 9 to 13 signs, 14 to 16 refinement. */
enum { JPEG2000_SIGNS = 9, JPEG2000_REFINEMENT = 14, JPEG2000_RUN = 17, JPEG2000_UNIFORM = 18, JPEG2000_CONTEXTS = 19 };

enum { JPEG2000_FLAGS = 1026 * 6 }; /* of a block with its border: at most 4096 samples, sides from 4 to 1024 */

typedef struct {
    uint16_t flags[JPEG2000_FLAGS];
    int32_t data[4096];          /* twice the coefficients, so that the half of the last plane is kept */
    uint8_t zero_coding[4][256]; /* context by kind of band and significant neighbours */
    uint8_t contexts[JPEG2000_CONTEXTS];
    const uint8_t *at; /* the next byte; the segment ends with 0xFF 0xFF, which is never passed */
    uint32_t c, a;
    int32_t count, width, height, stride, kind, causal;
} jpeg2000_coder;

/* Table C.2: probability, next state after the more and after the less probable symbol, and whether the sense switches.
 */
static const struct {
    uint16_t probability;
    uint8_t more, less, change;
} jpeg2000_states[47] = {
    {0x5601, 1, 1, 1},   {0x3401, 2, 6, 0},   {0x1801, 3, 9, 0},   {0x0AC1, 4, 12, 0},  {0x0521, 5, 29, 0},
    {0x0221, 38, 33, 0}, {0x5601, 7, 6, 1},   {0x5401, 8, 14, 0},  {0x4801, 9, 14, 0},  {0x3801, 10, 14, 0},
    {0x3001, 11, 17, 0}, {0x2401, 12, 18, 0}, {0x1C01, 13, 20, 0}, {0x1601, 29, 21, 0}, {0x5601, 15, 14, 1},
    {0x5401, 16, 14, 0}, {0x5101, 17, 15, 0}, {0x4801, 18, 16, 0}, {0x3801, 19, 17, 0}, {0x3401, 20, 18, 0},
    {0x3001, 21, 19, 0}, {0x2801, 22, 19, 0}, {0x2401, 23, 20, 0}, {0x2201, 24, 21, 0}, {0x1C01, 25, 22, 0},
    {0x1801, 26, 23, 0}, {0x1601, 27, 24, 0}, {0x1401, 28, 25, 0}, {0x1201, 29, 26, 0}, {0x1101, 30, 27, 0},
    {0x0AC1, 31, 28, 0}, {0x09C1, 32, 29, 0}, {0x08A1, 33, 30, 0}, {0x0521, 34, 31, 0}, {0x0441, 35, 32, 0},
    {0x02A1, 36, 33, 0}, {0x0221, 37, 34, 0}, {0x0141, 38, 35, 0}, {0x0111, 39, 36, 0}, {0x0085, 40, 37, 0},
    {0x0049, 41, 38, 0}, {0x0025, 42, 39, 0}, {0x0015, 43, 40, 0}, {0x0009, 44, 41, 0}, {0x0005, 45, 42, 0},
    {0x0001, 45, 43, 0}, {0x5601, 46, 46, 0}};

/* Compute the context of zero coding, table D.1. */
static uint8_t jpeg2000_zero_context(int32_t kind, int32_t flags) {
    int32_t h = (flags & JPEG2000_WEST ? 1 : 0) + (flags & JPEG2000_EAST ? 1 : 0);
    int32_t v = (flags & JPEG2000_NORTH ? 1 : 0) + (flags & JPEG2000_SOUTH ? 1 : 0);
    int32_t d = (flags & JPEG2000_NORTH_WEST ? 1 : 0) + (flags & JPEG2000_NORTH_EAST ? 1 : 0) +
                (flags & JPEG2000_SOUTH_WEST ? 1 : 0) + (flags & JPEG2000_SOUTH_EAST ? 1 : 0);
    if (kind == 3) {
        int32_t sides = (int32_t)jpeg2000_least(h + v, 2);
        if (d >= 3) return 8;
        if (d == 2) return sides ? 7 : 6;
        return (uint8_t)(3 * d + sides);
    }
    if (kind == 1) {
        int32_t other = h;
        h = v;
        v = other;
    }
    if (h == 2) return 8;
    if (h == 1) return v ? 7 : d ? 6 : 5;
    if (v) return (uint8_t)(2 + v);
    return (uint8_t)jpeg2000_least(d, 2);
}

static void jpeg2000_coder_tables(jpeg2000_coder *coder) {
    for (int32_t kind = 0; kind < 4; kind++)
        for (int32_t flags = 0; flags < 256; flags++)
            coder->zero_coding[kind][flags] = jpeg2000_zero_context(kind, flags);
}

static void jpeg2000_reset_contexts(jpeg2000_coder *coder) {
    memset(coder->contexts, 0, sizeof coder->contexts);
    coder->contexts[0] = 4 << 1;
    coder->contexts[JPEG2000_RUN] = 3 << 1;
    coder->contexts[JPEG2000_UNIFORM] = 46 << 1;
}

static void jpeg2000_next_byte(jpeg2000_coder *coder) {
    if (coder->at[0] != 0xFF) {
        coder->at++;
        coder->c += (uint32_t)coder->at[0] << 8;
        coder->count = 8;
    } else if (coder->at[1] > 0x8F) {
        coder->c += 0xFF00;
        coder->count = 8;
    } else {
        coder->at++;
        coder->c += (uint32_t)coder->at[0] << 9;
        coder->count = 7;
    }
}

/* Begin a segment of MQ codewords. */
static void jpeg2000_begin(jpeg2000_coder *coder, const uint8_t *bytes) {
    coder->at = bytes;
    coder->c = (uint32_t)bytes[0] << 16;
    jpeg2000_next_byte(coder);
    coder->c <<= 7;
    coder->count -= 7;
    coder->a = 0x8000;
}

/* Begin a segment of raw bits. */
static void jpeg2000_begin_raw(jpeg2000_coder *coder, const uint8_t *bytes) {
    coder->at = bytes;
    coder->c = 0;
    coder->count = 0;
}

static int32_t jpeg2000_raw_bit(jpeg2000_coder *coder) {
    if (coder->count == 0) {
        coder->count = coder->c == 0xFF ? 7 : 8;
        if (coder->c == 0xFF && coder->at[0] > 0x8F) {
            coder->count = 8;
        } else {
            coder->c = coder->at[0];
            coder->at++;
        }
    }
    coder->count--;
    return (int32_t)(coder->c >> coder->count & 1);
}

/* Decode one symbol in a context, figures C.15 to C.20. */
static int32_t jpeg2000_bit(jpeg2000_coder *coder, int32_t context) {
    uint32_t entry = coder->contexts[context], state = entry >> 1, sense = entry & 1;
    uint32_t probability = jpeg2000_states[state].probability;
    coder->a -= probability;
    int32_t below = coder->c >> 16 < probability;
    if (!below) {
        coder->c -= probability << 16;
        if (coder->a & 0x8000) return (int32_t)sense;
    }
    int32_t less = below ? coder->a >= probability : coder->a < probability;
    if (below) coder->a = probability;
    uint32_t bit = sense ^ (uint32_t)less;
    if (less)
        coder->contexts[context] =
            (uint8_t)(jpeg2000_states[state].less << 1 | (sense ^ jpeg2000_states[state].change));
    else coder->contexts[context] = (uint8_t)(jpeg2000_states[state].more << 1 | sense);
    do {
        if (coder->count == 0) jpeg2000_next_byte(coder);
        coder->a <<= 1;
        coder->c <<= 1;
        coder->count--;
    } while (!(coder->a & 0x8000));
    return (int32_t)bit;
}

/* Decode a sign, tables D.2 and D.3. Returns whether it is negative. */
static int32_t jpeg2000_sign(jpeg2000_coder *coder, int32_t flags) {
    int32_t h = 0, v = 0;
    if (flags & JPEG2000_WEST) h += flags & JPEG2000_WEST_NEGATIVE ? -1 : 1;
    if (flags & JPEG2000_EAST) h += flags & JPEG2000_EAST_NEGATIVE ? -1 : 1;
    if (flags & JPEG2000_NORTH) v += flags & JPEG2000_NORTH_NEGATIVE ? -1 : 1;
    if (flags & JPEG2000_SOUTH) v += flags & JPEG2000_SOUTH_NEGATIVE ? -1 : 1;
    h = h > 0 ? 1 : h < 0 ? -1 : 0;
    v = v > 0 ? 1 : v < 0 ? -1 : 0;
    int32_t number = 3 * h + v; /* the contexts of opposite contributions are the same, their signs opposite */
    int32_t context = JPEG2000_SIGNS + (number < 0 ? -number : number);
    return jpeg2000_bit(coder, context) ^ (number < 0);
}

/* Make a sample significant and tell its neighbours. */
static void jpeg2000_make_significant(jpeg2000_coder *coder, uint16_t *flag, int32_t y, int32_t negative) {
    int32_t stride = coder->stride;
    flag[0] |= JPEG2000_SIGNIFICANT;
    flag[-1] |= (uint16_t)(JPEG2000_EAST | (negative ? JPEG2000_EAST_NEGATIVE : 0));
    flag[1] |= (uint16_t)(JPEG2000_WEST | (negative ? JPEG2000_WEST_NEGATIVE : 0));
    flag[stride] |= (uint16_t)(JPEG2000_NORTH | (negative ? JPEG2000_NORTH_NEGATIVE : 0));
    flag[stride - 1] |= JPEG2000_NORTH_EAST;
    flag[stride + 1] |= JPEG2000_NORTH_WEST;
    if (coder->causal && y % 4 == 0) return; /* a stripe does not know of the next one */
    flag[-stride] |= (uint16_t)(JPEG2000_SOUTH | (negative ? JPEG2000_SOUTH_NEGATIVE : 0));
    flag[-stride - 1] |= JPEG2000_SOUTH_EAST;
    flag[-stride + 1] |= JPEG2000_SOUTH_WEST;
}

static void jpeg2000_significance_pass(jpeg2000_coder *coder, int32_t plane, int32_t raw) {
    int32_t value = 3 << (plane - 1);
    for (int32_t top = 0; top < coder->height; top += 4)
        for (int32_t x = 0; x < coder->width; x++)
            for (int32_t y = top; y < top + 4 && y < coder->height; y++) {
                uint16_t *flag = coder->flags + (y + 1) * coder->stride + x + 1;
                if (*flag & JPEG2000_SIGNIFICANT || !(*flag & JPEG2000_NEIGHBOURS)) continue;
                int32_t context = coder->zero_coding[coder->kind][*flag & JPEG2000_NEIGHBOURS];
                if (raw ? jpeg2000_raw_bit(coder) : jpeg2000_bit(coder, context)) {
                    int32_t negative = raw ? jpeg2000_raw_bit(coder) : jpeg2000_sign(coder, *flag);
                    coder->data[y * coder->width + x] = negative ? -value : value;
                    jpeg2000_make_significant(coder, flag, y, negative);
                }
                *flag |= JPEG2000_VISITED;
            }
}

static void jpeg2000_refinement_pass(jpeg2000_coder *coder, int32_t plane, int32_t raw) {
    int32_t half = 1 << plane >> 1;
    for (int32_t top = 0; top < coder->height; top += 4)
        for (int32_t x = 0; x < coder->width; x++)
            for (int32_t y = top; y < top + 4 && y < coder->height; y++) {
                uint16_t *flag = coder->flags + (y + 1) * coder->stride + x + 1;
                if ((*flag & (JPEG2000_SIGNIFICANT | JPEG2000_VISITED)) != JPEG2000_SIGNIFICANT) continue;
                int32_t context = JPEG2000_REFINEMENT + (*flag & JPEG2000_REFINED      ? 2
                                                         : *flag & JPEG2000_NEIGHBOURS ? 1
                                                                                       : 0);
                int32_t bit = raw ? jpeg2000_raw_bit(coder) : jpeg2000_bit(coder, context);
                int32_t *sample = coder->data + y * coder->width + x;
                *sample += bit ^ (*sample < 0) ? half : -half;
                *flag |= JPEG2000_REFINED;
            }
}

/* Clean up one column of a stripe. */
static void jpeg2000_cleanup_column(jpeg2000_coder *coder, int32_t value, int32_t top, int32_t x) {
    uint16_t *column = coder->flags + (top + 1) * coder->stride + x + 1;
    int32_t stride = coder->stride, y = top, found = 0;
    int32_t any = JPEG2000_SIGNIFICANT | JPEG2000_VISITED | JPEG2000_NEIGHBOURS;
    if (top + 4 <= coder->height && !((column[0] | column[stride] | column[2 * stride] | column[3 * stride]) & any)) {
        if (!jpeg2000_bit(coder, JPEG2000_RUN)) return;
        y += jpeg2000_bit(coder, JPEG2000_UNIFORM) << 1;
        y += jpeg2000_bit(coder, JPEG2000_UNIFORM);
        found = 1;
    }
    for (; y < top + 4 && y < coder->height; y++) {
        uint16_t *flag = column + (y - top) * stride;
        if (found || !(*flag & (JPEG2000_SIGNIFICANT | JPEG2000_VISITED))) {
            if (found || jpeg2000_bit(coder, coder->zero_coding[coder->kind][*flag & JPEG2000_NEIGHBOURS])) {
                int32_t negative = jpeg2000_sign(coder, *flag);
                coder->data[y * coder->width + x] = negative ? -value : value;
                jpeg2000_make_significant(coder, flag, y, negative);
            }
        }
        found = 0;
    }
}

static void jpeg2000_cleanup_pass(jpeg2000_coder *coder, int32_t plane, int32_t symbols) {
    for (int32_t top = 0; top < coder->height; top += 4)
        for (int32_t x = 0; x < coder->width; x++) jpeg2000_cleanup_column(coder, 3 << (plane - 1), top, x);
    for (int32_t k = 0; k < (coder->height + 2) * coder->stride; k++) coder->flags[k] &= (uint16_t)~JPEG2000_VISITED;
    for (int32_t k = 0; symbols && k < 4; k++)
        jpeg2000_bit(coder, JPEG2000_UNIFORM); /* 1010 in an intact file; nothing depends on it */
}

/* Say where the segment of a pass ends: the number of the first pass of the next segment. */
static int32_t jpeg2000_segment_end(int32_t style, int32_t pass) {
    if (style & JPEG2000_TERMINATE) return pass + 1;
    if (!(style & JPEG2000_BYPASS)) return JPEG2000_PASSES + 1;
    if (pass < 10) return 10;
    return (pass - 10) % 3 == 0 ? pass + 2 : pass + 1;
}

/* Begin a block: no sample is significant. */
static void jpeg2000_begin_block(jpeg2000_coder *coder, int32_t width, int32_t height, int32_t kind, int32_t style) {
    coder->width = width;
    coder->height = height;
    coder->stride = width + 2;
    coder->kind = kind;
    coder->causal = style & JPEG2000_CAUSAL;
    memset(coder->data, 0, sizeof(int32_t) * (size_t)(width * height));
    memset(coder->flags, 0, sizeof(uint16_t) * (size_t)((width + 2) * (height + 2)));
    jpeg2000_reset_contexts(coder);
}

/* Decode passes `pass` to below `end` of a block; they are one segment, whose bytes are followed by 0xFF 0xFF. */
static void jpeg2000_decode_segment(jpeg2000_coder *coder, const uint8_t *bytes, int32_t pass, int32_t end,
                                    int32_t planes, int32_t style) {
    int32_t raw = style & JPEG2000_BYPASS && pass >= 10 && (pass - 10) % 3 < 2;
    if (raw) jpeg2000_begin_raw(coder, bytes);
    else jpeg2000_begin(coder, bytes);
    for (; pass < end; pass++) {
        int32_t plane = planes - (pass + 2) / 3;
        if (plane < 1) return;
        if (pass % 3 == 1) jpeg2000_significance_pass(coder, plane, raw);
        else if (pass % 3 == 2) jpeg2000_refinement_pass(coder, plane, raw);
        else jpeg2000_cleanup_pass(coder, plane, style & JPEG2000_SYMBOLS);
        if (style & JPEG2000_RESET) jpeg2000_reset_contexts(coder);
    }
}
