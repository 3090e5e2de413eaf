/* Windows bitmaps of 1, 4, 8, 16, 24 and 32 bits, plain or run-length encoded, from the bottom up or from the top down.
 * Not supported: masks of colours other than the usual ones; JPEG and PNG inside. */

enum { bmp_plain = 0, bmp_rle8 = 1, bmp_rle4 = 2, bmp_masks = 3 };

typedef struct bmp_header {
    int64_t height, width;
    int64_t colors, entry;   /* of the palette: their number, bytes of one */
    int64_t palette, pixels; /* where they begin */
    int bits, coding, down;  /* down: rows from the top down */
    uint32_t masks[4];       /* of red, green, blue and alpha */
} bmp_header;

static uint32_t bmp_u16(const uint8_t *at) {
    return (uint32_t)at[0] | (uint32_t)at[1] << 8;
}

static uint32_t bmp_u32(const uint8_t *at) {
    return bmp_u16(at) | bmp_u16(at + 2) << 16;
}

/* Read a header of 40 bytes or more; `end` is where it ends. */
static int bmp_read_info(const uint8_t *bytes, int64_t count, int64_t end, bmp_header *h) {
    h->down = bytes[25] == 0xFF;
    h->width = bmp_u32(bytes + 18);
    h->height = h->down ? (int64_t)(0u - bmp_u32(bytes + 22)) : (int64_t)bmp_u32(bytes + 22);
    h->bits = (int)bmp_u16(bytes + 28);
    h->coding = bmp_u32(bytes + 30) > bmp_masks ? -1 : (int)bmp_u32(bytes + 30);
    h->colors = bmp_u32(bytes + 46);
    h->entry = 4;
    h->palette = end;
    if (h->coding == bmp_masks) {
        const int alpha = end >= 14 + 56; /* shorter headers have no mask of alpha, the shortest none at all */
        if (end == 14 + 40) h->palette += 12;
        if (count < 54 + (alpha ? 16 : 12)) return 1;
        for (int k = 0; k < 4; k++) h->masks[k] = k < 3 || alpha ? bmp_u32(bytes + 54 + 4 * k) : 0;
    }
    return 0;
}

static int bmp_read_header(const uint8_t *bytes, int64_t count, bmp_header *h) {
    memset(h, 0, sizeof *h);
    if (count < 26 || bytes[0] != 'B' || bytes[1] != 'M') return 1;
    const int64_t size = bmp_u32(bytes + 14), end = 14 + size;
    if (count < end) return 1;
    if (size == 12) {
        h->width = bmp_u16(bytes + 18);
        h->height = bmp_u16(bytes + 20);
        h->bits = (int)bmp_u16(bytes + 24);
        h->entry = 3;
        h->palette = end;
    } else if (size != 40 && size != 52 && size != 56 && size != 64 && size != 108 && size != 124) {
        return 1;
    } else if (bmp_read_info(bytes, count, end, h)) {
        return 1;
    }
    const int b = h->bits;
    if (b != 1 && b != 4 && b != 8 && b != 16 && b != 24 && b != 32) return 1;
    if (h->coding < 0 || ((h->coding == bmp_rle8 || h->coding == bmp_rle4) && b != 4 && b != 8)) return 1;
    if (h->coding == bmp_masks && b <= 8) return 1;
    if (!h->colors) h->colors = b <= 8 ? 1 << b : 0;
    if (b <= 8 && h->colors > 256) return 1;
    h->pixels = bmp_u32(bytes + 10);
    const int64_t behind = h->palette + (b <= 8 ? h->colors * h->entry : 0);
    if (h->pixels == 0 || (h->pixels == end && b <= 8)) h->pixels = behind;
    return h->width < 1 || h->height < 1 || h->width > INT32_MAX || h->height > INT32_MAX || h->pixels > count;
}

static int bmp_size(const uint8_t *bytes, int64_t count, int64_t *height, int64_t *width) {
    bmp_header h;
    if (bmp_read_header(bytes, count, &h)) return 1;
    *height = h.height;
    *width = h.width;
    return 0;
}

/* 0 */
static int64_t bmp_scratch(int64_t height, int64_t width, int64_t count) {
    (void)height;
    (void)width;
    (void)count;
    return 0;
}

/* Read the palette, in RGB. What it lacks is black, or grey if it is the beginning of all greys. */
static void bmp_read_palette(const uint8_t *bytes, int64_t count, const bmp_header *h, uint8_t palette[256][3]) {
    int greys = 1;
    for (int64_t k = 0; k < 256; k++) {
        const int64_t at = h->palette + k * h->entry;
        const int there = k < h->colors && at + h->entry <= count;
        for (int c = 0; c < 3; c++) {
            palette[k][c] = there ? bytes[at + 2 - c] : (uint8_t)(greys ? k : 0);
            greys = greys && palette[k][c] == k;
        }
    }
}

/* Find in which bytes of a pixel red, green and blue are, by their masks. */
static int bmp_places(const bmp_header *h, int places[3]) {
    static const uint32_t known[][4] = {
        {0xFF0000, 0xFF00, 0xFF, 0},
        {0xFF000000, 0xFF0000, 0xFF00, 0},
        {0xFF000000, 0xFF00, 0xFF, 0},
        {0xFF000000, 0xFF0000, 0xFF00, 0xFF},
        {0xFF, 0xFF00, 0xFF0000, 0xFF000000},
        {0xFF0000, 0xFF00, 0xFF, 0xFF000000},
        {0xFF000000, 0xFF00, 0xFF, 0xFF0000},
        {0, 0, 0, 0},
    };
    places[0] = 2;
    places[1] = 1;
    places[2] = 0;
    if (h->coding != bmp_masks) return 0;
    if (h->bits == 24) return memcmp(h->masks, known[0], 12) != 0;
    size_t k = 0;
    while (k < sizeof known / sizeof *known && memcmp(h->masks, known[k], sizeof h->masks)) k++;
    if (k == sizeof known / sizeof *known) return 1;
    for (int c = 0; c < 3 && h->masks[c]; c++)
        for (places[c] = 0; h->masks[c] >> 8 * places[c] != 0xFF && places[c] < 3;) places[c]++;
    return 0;
}

/* Tell how many bits green has in a pixel of 16; 0 if its masks are others than the usual ones. */
static int bmp_green_bits(const bmp_header *h) {
    static const uint32_t five[3] = {0x7C00, 0x3E0, 0x1F}, six[3] = {0xF800, 0x7E0, 0x1F};
    if (h->coding != bmp_masks || !memcmp(h->masks, five, sizeof five)) return 5;
    return memcmp(h->masks, six, sizeof six) ? 0 : 6;
}

static void bmp_row(const uint8_t *from, const bmp_header *h, uint8_t palette[256][3], const int places[3], int green,
                    uint8_t *rgb) {
    for (int64_t x = 0; x < h->width; x++, rgb += 3) {
        if (h->bits <= 8) {
            const int64_t bit = x * h->bits;
            const int index = from[bit / 8] >> (8 - h->bits - bit % 8) & ((1 << h->bits) - 1);
            memcpy(rgb, palette[index], 3);
        } else if (h->bits == 16) {
            const uint32_t pixel = bmp_u16(from + 2 * x), most = green == 6 ? 63 : 31;
            rgb[0] = (uint8_t)((pixel >> (5 + green) & 31) * 255 / 31);
            rgb[1] = (uint8_t)((pixel >> 5 & most) * 255 / most);
            rgb[2] = (uint8_t)((pixel & 31) * 255 / 31);
        } else {
            for (int c = 0; c < 3; c++) rgb[c] = from[x * (h->bits / 8) + places[c]];
        }
    }
}

/* Write `n` pixels of run-length encoding, which alternate between two, behind those that there are. */
static void bmp_put(const bmp_header *h, uint8_t *rgb, int64_t *done, int64_t n, const uint8_t *a, const uint8_t *b) {
    for (int64_t k = 0; k < n; k++, ++*done) {
        const int64_t y = *done / h->width, row = h->down ? y : h->height - 1 - y;
        memcpy(rgb + 3 * (row * h->width + *done % h->width), k % 2 ? b : a, 3);
    }
}

/* Decode pixels that stand as they are between runs.  Returns where they end, or -1 if the file does before. */
static int64_t bmp_literal(const uint8_t *bytes, int64_t count, int64_t at, const bmp_header *h, uint8_t *rgb,
                           uint8_t palette[256][3], int64_t *done, int64_t n) {
    const int four = h->coding == bmp_rle4;
    const int64_t size = four ? (n + 1) / 2 : n;
    if (size > count - at) return -1;
    for (int64_t k = 0; k < size; k++) {
        const uint8_t *a = palette[four ? bytes[at + k] >> 4 : bytes[at + k]], *b = palette[bytes[at + k] & 15];
        bmp_put(h, rgb, done, four && 2 * k + 1 < n ? 2 : 1, a, b);
    }
    return at + size + (at + size) % 2;
}

static int bmp_runs(const uint8_t *bytes, int64_t count, const bmp_header *h, uint8_t *rgb, uint8_t palette[256][3]) {
    const int64_t all = h->height * h->width, width = h->width;
    const int four = h->coding == bmp_rle4;
    int64_t done = 0, x = 0, at = h->pixels;
    while (done < all && at + 2 <= count) {
        const int64_t run = bytes[at];
        const uint8_t value = bytes[at + 1];
        int64_t skipped = 0;
        at += 2;
        if (run) {
            int64_t n = run < width - x ? run : width - x;
            if (n < 0) n = 0;
            if (n > all - done) n = all - done;
            bmp_put(h, rgb, &done, n, palette[four ? value >> 4 : value], palette[four ? value & 15 : value]);
            x += n;
        } else if (value == 0) {
            skipped = done % width ? width - done % width : 0;
            x = 0;
        } else if (value == 1) {
            break;
        } else if (value == 2) {
            if (at + 2 > count) break;
            skipped = bytes[at] + bytes[at + 1] * width;
            if (skipped > all - done) skipped = all - done;
            x = (done + skipped) % width;
            at += 2;
        } else {
            at = bmp_literal(bytes, count, at, h, rgb, palette, &done, value < all - done ? value : all - done);
            if (at < 0) break;
            x += value;
        }
        bmp_put(h, rgb, &done, skipped, palette[0], palette[0]);
    }
    return done < all;
}

static int bmp_decode(const uint8_t *bytes, int64_t count, uint8_t *rgb, int64_t height, int64_t width,
                      uint8_t *scratch) {
    bmp_header h;
    uint8_t palette[256][3];
    int places[3] = {2, 1, 0}, green = 5;
    (void)scratch;
    if (bmp_read_header(bytes, count, &h) || h.height != height || h.width != width) return 1;
    bmp_read_palette(bytes, count, &h, palette);
    if (h.coding == bmp_rle8 || h.coding == bmp_rle4) return bmp_runs(bytes, count, &h, rgb, palette);
    if (h.bits == 16 && !(green = bmp_green_bits(&h))) return 1;
    if (h.bits >= 24 && bmp_places(&h, places)) return 1;
    const int64_t row = (width * h.bits + 31) / 32 * 4, used = (width * h.bits + 7) / 8;
    if (count - h.pixels < used || (count - h.pixels - used) / row < height - 1) return 1;
    for (int64_t y = 0; y < height; y++) {
        const int64_t to = h.down ? y : height - 1 - y;
        bmp_row(bytes + h.pixels + y * row, &h, palette, places, green, rgb + 3 * to * width);
    }
    return 0;
}
