/* WebP, lossless: the bit reader and the prefix codes (specification of the lossless bitstream, sections 3 and 6).
 *
 * A code lies in a pool of 16-bit numbers: the bits of its table; the number of symbols of each length from 1 to 15; a
 * table that resolves its first bits (16 times the symbol, plus the length; 0 where the code is longer); its symbols in
 * the order of their codes. A code of a single symbol takes no bits. */

enum { WEBP_ALPHABET = 256 + 24 + 2048, WEBP_MAX_LENGTH = 15, WEBP_TABLE_BITS = 8, WEBP_CODE_HEAD = 16 };

/* Bit reader, lowest bit first. Past the end it reads zeros; `padding` counts them. */
typedef struct {
    const uint8_t *next, *end;
    uint64_t value;
    int bits;
    int64_t padding;
} webp_reader;

/* Memory for prefix codes: `count` numbers of `size` are used. */
typedef struct {
    uint16_t *numbers;
    int64_t size, count;
} webp_pool;

/* Make at least 56 bits ready. */
static inline void webp_refill(webp_reader *r) {
    while (r->bits <= 56) {
        if (r->next < r->end) r->value |= (uint64_t)*r->next++ << r->bits;
        else r->padding += 8;
        r->bits += 8;
    }
}

/* Take bits that are ready. */
static inline uint32_t webp_take_bits(webp_reader *r, int count) {
    const uint32_t bits = (uint32_t)(r->value & ((UINT64_C(1) << count) - 1));
    r->value >>= count;
    r->bits -= count;
    return bits;
}

/* Read up to 32 bits. */
static inline uint32_t webp_read_bits(webp_reader *r, int count) {
    if (r->bits < count) webp_refill(r);
    return webp_take_bits(r, count);
}

/* Say whether bits past the end were used. */
static inline int webp_overrun(const webp_reader *r) {
    return r->padding > r->bits;
}

/* Decode a symbol whose code is longer than the table knows. */
static uint32_t webp_read_long_symbol(webp_reader *r, const uint16_t *code) {
    const uint16_t *symbols = code + WEBP_CODE_HEAD + (1 << code[0]);
    uint32_t bits = 0, first = 0, index = 0;
    for (int length = 1; length <= WEBP_MAX_LENGTH; length++) {
        const uint32_t count = code[length];
        bits |= webp_take_bits(r, 1);
        if (bits < first + count) return symbols[index + bits - first];
        index += count;
        first = (first + count) << 1;
        bits <<= 1;
    }
    return 0; /* codes are complete: this is not reached */
}

/* Decode a symbol. */
static inline uint32_t webp_read_symbol(webp_reader *r, const uint16_t *code) {
    if (r->bits < WEBP_MAX_LENGTH) webp_refill(r);
    const uint32_t entry = code[WEBP_CODE_HEAD + (r->value & ((1u << code[0]) - 1))];
    if ((entry & 15) == 0 && code[0] > 0) return webp_read_long_symbol(r, code);
    webp_take_bits(r, (int)(entry & 15));
    return entry >> 4;
}

/* Fill the table of a code whose symbols are in place. */
static void webp_fill_table(uint16_t *code) {
    const int table_bits = code[0];
    uint16_t *table = code + WEBP_CODE_HEAD;
    const uint16_t *symbol = table + (1 << table_bits);
    memset(table, 0, sizeof *table << table_bits);
    uint32_t bits = 0; /* the code of the symbol, its highest bit first in the stream */
    for (int length = 1; length <= table_bits; length++, bits <<= 1) {
        for (int i = 0; i < code[length]; i++, bits++, symbol++) {
            uint32_t reversed = 0;
            for (int k = 0; k < length; k++) reversed |= (bits >> k & 1) << (length - 1 - k);
            for (uint32_t at = reversed; at < 1u << table_bits; at += 1u << length) {
                table[at] = (uint16_t)(*symbol << 4 | length);
            }
        }
    }
}

/* Choose the bits of the table of a code of `symbols` symbols: no larger than twice as many entries. */
static int webp_table_bits(int symbols, int longest) {
    int bits = 1;
    while (bits < WEBP_TABLE_BITS && 1 << (bits + 1) <= 2 * symbols) bits++;
    return bits < longest ? bits : longest;
}

/* Build the code of these lengths in the pool. Returns 1 if it is no code or there is no room for it. */
static int webp_build_code(webp_pool *pool, const uint8_t *lengths, int alphabet) {
    int counts[WEBP_MAX_LENGTH + 1] = {0}, next[WEBP_MAX_LENGTH + 2] = {0};
    for (int i = 0; i < alphabet; i++) counts[lengths[i]]++;
    const int symbols = alphabet - counts[0];
    int longest = 0;
    int64_t left = 1; /* codes of this length that are still free */
    for (int k = 1; k <= WEBP_MAX_LENGTH; k++) {
        left = 2 * left - counts[k];
        if (left < 0) return 1;
        if (counts[k]) longest = k;
        next[k + 1] = next[k] + counts[k];
    }
    if (symbols == 0 || (symbols > 1 && left > 0)) return 1;
    const int table_bits = symbols == 1 ? 0 : webp_table_bits(symbols, longest);
    if (WEBP_CODE_HEAD + (1 << table_bits) + symbols > pool->size - pool->count) return 1;
    uint16_t *code = pool->numbers + pool->count;
    uint16_t *sorted = code + WEBP_CODE_HEAD + (1 << table_bits);
    pool->count += WEBP_CODE_HEAD + (1 << table_bits) + symbols;
    code[0] = (uint16_t)table_bits;
    for (int k = 1; k <= WEBP_MAX_LENGTH; k++) code[k] = (uint16_t)counts[k];
    for (int i = 0; i < alphabet; i++) {
        if (lengths[i]) sorted[next[lengths[i]]++] = (uint16_t)i;
    }
    if (symbols == 1) code[WEBP_CODE_HEAD] = (uint16_t)(sorted[0] << 4);
    else webp_fill_table(code);
    return 0;
}

/* Read lengths that are themselves coded (section 6.2.1): `code` is the code of lengths. Returns 1 if there are too
 * many. */
static int webp_read_coded_lengths(webp_reader *r, const uint16_t *code, uint8_t *lengths, int alphabet) {
    int symbols = alphabet;
    if (webp_read_bits(r, 1)) {
        const int bits = 2 + 2 * (int)webp_read_bits(r, 3);
        symbols = 2 + (int)webp_read_bits(r, bits);
        if (symbols > alphabet) return 1;
    }
    uint8_t previous = 8;
    for (int i = 0; i < alphabet && symbols > 0; symbols--) {
        const uint32_t symbol = webp_read_symbol(r, code);
        if (symbol < 16) {
            lengths[i++] = (uint8_t)symbol;
            if (symbol) previous = (uint8_t)symbol;
            continue;
        }
        const int repeat = symbol == 16   ? 3 + (int)webp_read_bits(r, 2)
                           : symbol == 17 ? 3 + (int)webp_read_bits(r, 3)
                                          : 11 + (int)webp_read_bits(r, 7);
        if (repeat > alphabet - i) return 1;
        memset(lengths + i, symbol == 16 ? previous : 0, (size_t)repeat);
        i += repeat;
    }
    return 0;
}

/* Read a prefix code into the pool. Returns 1 if it is damaged or there is no room for it. */
static int webp_read_code(webp_reader *r, webp_pool *pool, int alphabet) {
    uint8_t lengths[WEBP_ALPHABET];
    memset(lengths, 0, sizeof lengths);
    if (webp_read_bits(r, 1)) {
        const uint32_t more = webp_read_bits(r, 1), wide = webp_read_bits(r, 1);
        lengths[webp_read_bits(r, wide ? 8 : 1)] = 1;
        if (more) lengths[webp_read_bits(r, 8)] = 1;
    } else {
        uint8_t of_lengths[19] = {0};
        const int count = 4 + (int)webp_read_bits(r, 4);
        for (int i = 0; i < count; i++) of_lengths[webp_length_order[i]] = (uint8_t)webp_read_bits(r, 3);
        webp_pool rest = {pool->numbers + pool->count, pool->size - pool->count, 0};
        if (webp_build_code(&rest, of_lengths, 19)) return 1;
        if (webp_read_coded_lengths(r, rest.numbers, lengths, alphabet)) return 1;
    }
    return webp_overrun(r) || webp_build_code(pool, lengths, alphabet);
}
