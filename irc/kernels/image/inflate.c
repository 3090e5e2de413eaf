/* Decompression of zlib streams (RFC 1950 and 1951). */

enum { inflate_longest = 15, inflate_quick_bits = 9 };

/* A prefix code: how many codes there are of each length, their symbols in order, and what short codes stand for. */
typedef struct inflate_code {
    uint16_t lengths[inflate_longest + 1];
    uint16_t symbols[288];
    uint16_t quick[1 << inflate_quick_bits]; /* symbol << 4 | length of the code; 0: longer, or none */
} inflate_code;

typedef struct inflate_state {
    const uint8_t *bytes;
    int64_t count, at;
    uint64_t bits; /* those read, the next one lowest */
    int held;      /* how many they are */
    int short_of;  /* more bits were wanted than there are */
    uint8_t *out;
    int64_t done, room;
} inflate_state;

static void inflate_fill(inflate_state *s) {
    while (s->held <= 48 && s->at < s->count) {
        s->bits |= (uint64_t)s->bytes[s->at++] << s->held;
        s->held += 8;
    }
}

/* Take up to 16 bits off the input. */
static uint32_t inflate_bits(inflate_state *s, int n) {
    if (s->held < n) inflate_fill(s);
    if (s->held < n) {
        s->short_of = 1;
        return 0;
    }
    const uint32_t value = (uint32_t)(s->bits & (((uint64_t)1 << n) - 1));
    s->bits >>= n;
    s->held -= n;
    return value;
}

/* Make a code of the lengths of its symbols' codes. Returns 1 if there are more codes than lengths allow. */
static int inflate_make(inflate_code *code, const uint8_t *lengths, int symbols) {
    uint16_t place[inflate_longest + 1];
    int32_t next[inflate_longest + 1], first = 0;
    memset(code, 0, sizeof *code);
    for (int k = 0; k < symbols; k++) code->lengths[lengths[k]]++;
    code->lengths[0] = place[0] = 0;
    next[0] = 0;
    for (int k = 1; k <= inflate_longest; k++) {
        place[k] = (uint16_t)(place[k - 1] + code->lengths[k - 1]);
        first = (first + code->lengths[k - 1]) << 1;
        next[k] = first;
        if (first + code->lengths[k] > 1 << k) return 1;
    }
    for (int k = 0; k < symbols; k++) {
        const int size = lengths[k];
        if (!size) continue;
        code->symbols[place[size]++] = (uint16_t)k;
        int32_t word = next[size]++, turned = 0;
        if (size > inflate_quick_bits) continue;
        for (int b = 0; b < size; b++, word >>= 1) turned = turned << 1 | (word & 1);
        for (; turned < 1 << inflate_quick_bits; turned += 1 << size) code->quick[turned] = (uint16_t)(k << 4 | size);
    }
    return 0;
}

/* Read a symbol.  Returns -1 if the bits are no code, or there are none left. */
static int inflate_symbol(inflate_state *s, const inflate_code *code) {
    if (s->held < inflate_longest) inflate_fill(s);
    const int quick = code->quick[s->bits & ((1 << inflate_quick_bits) - 1)];
    if (quick && (quick & 15) <= s->held) {
        s->bits >>= quick & 15;
        s->held -= quick & 15;
        return quick >> 4;
    }
    int32_t word = 0, first = 0, place = 0;
    for (int k = 1; k <= inflate_longest && k <= s->held; k++) {
        word = word << 1 | (int32_t)(s->bits >> (k - 1) & 1);
        if (word - first < code->lengths[k]) {
            s->bits >>= k;
            s->held -= k;
            return code->symbols[place + word - first];
        }
        place += code->lengths[k];
        first = (first + code->lengths[k]) << 1;
    }
    return -1;
}

/* Copy a block that is not compressed. Returns 1 if it is damaged, -1 if it does not fit into the memory. */
static int inflate_stored(inflate_state *s) {
    inflate_bits(s, s->held % 8);
    const uint32_t size = inflate_bits(s, 16), check = inflate_bits(s, 16);
    if (s->short_of || size != (check ^ 0xFFFF)) return 1;
    for (uint32_t k = 0; k < size; k++) {
        if (s->done == s->room) return -1;
        s->out[s->done] = (uint8_t)inflate_bits(s, 8);
        if (s->short_of) return 1;
        s->done++;
    }
    return 0;
}

/* Read the two codes of a block. */
static int inflate_codes(inflate_state *s, inflate_code *literals, inflate_code *distances) {
    static const uint8_t order[19] = {16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15};
    uint8_t lengths[320] = {0};
    const int wide = (int)inflate_bits(s, 5) + 257, far = (int)inflate_bits(s, 5) + 1;
    const int given = (int)inflate_bits(s, 4) + 4;
    if (wide > 286) return 1;
    for (int k = 0; k < given; k++) lengths[order[k]] = (uint8_t)inflate_bits(s, 3);
    if (inflate_make(literals, lengths, 19)) return 1; /* which stands for the code of lengths here */
    memset(lengths, 0, sizeof lengths);
    for (int k = 0; k < wide + far;) {
        const int symbol = inflate_symbol(s, literals);
        if (symbol < 0) return 1;
        if (symbol < 16) {
            lengths[k++] = (uint8_t)symbol;
            continue;
        }
        if (symbol == 16 && !k) return 1;
        const uint8_t value = symbol == 16 ? lengths[k - 1] : 0;
        int times = symbol == 16 ? 3 + (int)inflate_bits(s, 2) : symbol == 17 ? 3 + (int)inflate_bits(s, 3)
                                                                              : 11 + (int)inflate_bits(s, 7);
        if (k + times > wide + far) return 1;
        while (times--) lengths[k++] = value;
    }
    return s->short_of || !lengths[256] || inflate_make(literals, lengths, wide) ||
           inflate_make(distances, lengths + wide, far);
}

static void inflate_fixed(inflate_code *literals, inflate_code *distances) {
    uint8_t lengths[288];
    for (int k = 0; k < 288; k++) lengths[k] = k < 144 ? 8 : k < 256 ? 9 : k < 280 ? 7 : 8;
    inflate_make(literals, lengths, 288);
    memset(lengths, 5, 30);
    inflate_make(distances, lengths, 30);
}

/* Decode a block of literals and copies. Returns 1 if it is damaged, -1 if it does not fit into the memory. */
static int inflate_block(inflate_state *s, const inflate_code *literals, const inflate_code *distances) {
    static const uint16_t lengths[29] = {3,  4,  5,  6,  7,  8,  9,  10, 11,  13,  15,  17,  19,  23, 27,
                                         31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195, 227, 258};
    static const uint16_t starts[30] = {1,   2,   3,   4,   5,   7,    9,    13,   17,   25,
                                        33,  49,  65,  97,  129, 193,  257,  385,  513,  769,
                                        1025, 1537, 2049, 3073, 4097, 6145, 8193, 12289, 16385, 24577};
    for (;;) {
        int symbol = inflate_symbol(s, literals);
        if (symbol < 0) return 1;
        if (symbol == 256) return 0;
        if (s->done == s->room) return -1;
        if (symbol < 256) {
            s->out[s->done++] = (uint8_t)symbol;
            continue;
        }
        symbol -= 257;
        if (symbol > 28) return 1;
        int64_t size = lengths[symbol];
        if (symbol > 7 && symbol < 28) size += inflate_bits(s, symbol / 4 - 1);
        const int far = inflate_symbol(s, distances);
        if (far < 0 || far > 29) return 1;
        const int64_t distance = starts[far] + (int64_t)(far > 3 ? inflate_bits(s, far / 2 - 1) : 0);
        if (s->short_of || distance > s->done) return 1;
        if (size > s->room - s->done) size = s->room - s->done;
        for (; size > 0; size--, s->done++) s->out[s->done] = s->out[s->done - distance];
    }
}

/* Tell whether the check sum behind the stream is that of the bytes; a missing one is. */
static int inflate_checks(inflate_state *s) {
    uint32_t a = 1, b = 0, sum = 0;
    for (int64_t k = 0; k < s->done;) {
        const int64_t end = s->done - k < 5000 ? s->done : k + 5000;
        for (; k < end; k++) {
            a += s->out[k];
            b += a;
        }
        a %= 65521;
        b %= 65521;
    }
    inflate_bits(s, s->held % 8);
    for (int k = 0; k < 4; k++) sum = sum << 8 | inflate_bits(s, 8);
    return s->short_of || sum == (b << 16 | a);
}

/* Decompress a stream until it ends or the memory is full. Returns how many bytes there are, or -1 if it is damaged. */
static int64_t inflate_zlib(const uint8_t *bytes, int64_t count, uint8_t *out, int64_t room) {
    inflate_state s = {bytes, count, 2, 0, 0, 0, out, 0, room};
    inflate_code literals, distances;
    if (count < 2 || (bytes[0] & 15) != 8 || (bytes[0] << 8 | bytes[1]) % 31 || bytes[1] & 32) return -1;
    for (int last = 0; !last;) {
        last = (int)inflate_bits(&s, 1);
        const uint32_t kind = inflate_bits(&s, 2);
        int wrong = s.short_of || kind == 3;
        if (kind == 1) inflate_fixed(&literals, &distances);
        if (kind == 2) wrong = wrong || inflate_codes(&s, &literals, &distances);
        if (!wrong) wrong = kind ? inflate_block(&s, &literals, &distances) : inflate_stored(&s);
        if (wrong) return s.done == room ? room : -1; /* what is behind all that is wanted does not count */
    }
    return inflate_checks(&s) ? s.done : -1;
}
