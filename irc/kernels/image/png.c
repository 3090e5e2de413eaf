/* Portable network graphics: every type of colour and depth, interlaced or not. Of 16 bits the upper 8 count, but greys
 * without alpha become white from 255 on, as Pillow has them. Transparency is left out, and so are the further
 * images of an animation. */

typedef struct png_header {
    int64_t height, width;
    int depth, color, channels, interlaced;
    int64_t at;              /* where the first chunk of pixels begins */
    uint8_t palette[256][3]; /* black behind its end */
} png_header;

static uint32_t png_u32(const uint8_t *at) {
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

/* Compute the check sum of a chunk: a polynomial's remainder, 4 bits at a time. */
static uint32_t png_sum(const uint8_t *bytes, int64_t count) {
    static const uint32_t table[16] = {0x00000000, 0x1DB71064, 0x3B6E20C8, 0x26D930AC, 0x76DC4190, 0x6B6B51F4,
                                       0x4DB26158, 0x5005713C, 0xEDB88320, 0xF00F9344, 0xD6D6A3E8, 0xCB61B38C,
                                       0x9B64C2B0, 0x86D3D2D4, 0xA00AE278, 0xBDBDF21C};
    uint32_t sum = ~0u;
    for (int64_t k = 0; k < count; k++) {
        sum ^= bytes[k];
        sum = sum >> 4 ^ table[sum & 15];
        sum = sum >> 4 ^ table[sum & 15];
    }
    return ~sum;
}

/* Find the chunk that begins at `at`.  Returns the number of its bytes, or -1 if it does not end in the file. */
static int64_t png_chunk(const uint8_t *bytes, int64_t count, int64_t at) {
    if (count - at < 12) return -1;
    const int64_t size = png_u32(bytes + at);
    return size <= count - at - 12 ? size : -1;
}

static int png_is(const uint8_t *bytes, int64_t at, const char *kind) {
    return !memcmp(bytes + at + 4, kind, 4);
}

static int png_read_first(const uint8_t *from, png_header *h) {
    static const int channels[7] = {1, 0, 3, 1, 2, 0, 4}, depths[7] = {31, 0, 24, 15, 24, 0, 24};
    h->width = png_u32(from);
    h->height = png_u32(from + 4);
    h->depth = from[8];
    h->color = from[9];
    h->interlaced = from[12] != 0;
    if (h->color > 6 || !(h->channels = channels[h->color])) return 1;
    const int d = h->depth;
    if ((d != 1 && d != 2 && d != 4 && d != 8 && d != 16) || !(depths[h->color] & d)) return 1;
    return h->width < 1 || h->height < 1 || h->width > INT32_MAX || h->height > INT32_MAX || from[11] != 0;
}

/* Read all that stands before the pixels. */
static int png_read_header(const uint8_t *bytes, int64_t count, png_header *h) {
    memset(h, 0, sizeof *h);
    if (count < 8 || memcmp(bytes, "\211PNG\r\n\032\n", 8)) return 1;
    for (int64_t at = 8, size;; at += size + 12) {
        if ((size = png_chunk(bytes, count, at)) < 0 && (h->width == 0 || count - at < 8)) return 1;
        if (h->width && png_is(bytes, at, "IDAT")) {
            h->at = at;
            return 0;
        }
        if (size < 0 || png_sum(bytes + at + 4, size + 4) != png_u32(bytes + at + 8 + size)) return 1;
        if (h->width == 0) {
            if (!png_is(bytes, at, "IHDR") || size < 13 || png_read_first(bytes + at + 8, h)) return 1;
        } else if (png_is(bytes, at, "PLTE")) {
            const int64_t most = size < 768 ? size / 3 * 3 : 768;
            memcpy(h->palette, bytes + at + 8, (size_t)most);
        } else if (png_is(bytes, at, "IEND")) {
            return 1;
        }
    }
}

static int png_size(const uint8_t *bytes, int64_t count, int64_t *height, int64_t *width) {
    png_header h;
    if (png_read_header(bytes, count, &h)) return 1;
    *height = h.height;
    *width = h.width;
    return 0;
}

/* 8*h*w + 4*h + count + 32 */
static int64_t png_scratch(int64_t height, int64_t width, int64_t count) {
    return 8 * height * width + 4 * height + count + 32;
}

/* Put the compressed pixels together, which stand in several chunks.  Returns their number. */
static int64_t png_join(const uint8_t *bytes, int64_t count, int64_t at, uint8_t *to) {
    int64_t joined = 0;
    while (count - at >= 8 && png_is(bytes, at, "IDAT")) {
        const int64_t size = png_u32(bytes + at), there = size < count - at - 8 ? size : count - at - 8;
        memcpy(to + joined, bytes + at + 8, (size_t)there);
        joined += there;
        at += size + 12;
    }
    return joined;
}

static int png_nearest(int left, int up, int corner) {
    const int p = left + up - corner;
    const int a = p > left ? p - left : left - p, b = p > up ? p - up : up - p;
    const int c = p > corner ? p - corner : corner - p;
    return a <= b && a <= c ? left : b <= c ? up : corner;
}

/* Undo the filter of a row. `above`: the row above, NULL for the first; `step`: bytes of a pixel. */
static int png_unfilter(int filter, uint8_t *row, const uint8_t *above, int64_t size, int step) {
    if (filter > 4) return 1;
    for (int64_t k = 0; filter && k < size; k++) {
        const int left = k < step ? 0 : row[k - step], up = above ? above[k] : 0;
        const int corner = above && k >= step ? above[k - step] : 0;
        const int guess = filter == 1   ? left
                          : filter == 2 ? up
                          : filter == 3 ? (left + up) / 2
                                        : png_nearest(left, up, corner);
        row[k] = (uint8_t)(row[k] + guess);
    }
    return 0;
}

static void png_pixel(const png_header *h, const uint8_t *row, int64_t x, uint8_t *rgb) {
    const int d = h->depth, n = h->channels;
    if (d < 8) {
        const int64_t bit = x * d;
        const int value = row[bit / 8] >> (8 - d - bit % 8) & ((1 << d) - 1);
        if (h->color == 3) memcpy(rgb, h->palette[value], 3);
        else memset(rgb, value * (255 / ((1 << d) - 1)), 3);
        return;
    }
    const uint8_t *from = row + x * n * (d / 8);
    if (h->color == 3) memcpy(rgb, h->palette[*from], 3);
    else if (n < 3) memset(rgb, d == 16 && n == 1 && from[0] ? 255 : d == 16 && n == 1 ? from[1] : from[0], 3);
    else for (int c = 0; c < 3; c++) rgb[c] = from[c * (d / 8)];
}

/* Decode the pixels at every `dy`th row and `dx`th column from (y0, x0) on.  Returns 1 if a filter is unknown. */
static int png_pass(const png_header *h, uint8_t **raw, uint8_t *rgb, int64_t y0, int64_t x0, int64_t dy, int64_t dx) {
    const int64_t height = (h->height - y0 + dy - 1) / dy, width = (h->width - x0 + dx - 1) / dx;
    const int bits = h->depth * h->channels;
    const int64_t size = (width * bits + 7) / 8;
    const uint8_t *above = 0;
    if (height < 1 || width < 1) return 0;
    for (int64_t y = 0; y < height; y++) {
        uint8_t *row = *raw + 1;
        if (png_unfilter((*raw)[0], row, above, size, bits < 8 ? 1 : bits / 8)) return 1;
        for (int64_t x = 0; x < width; x++) png_pixel(h, row, x, rgb + 3 * ((y0 + y * dy) * h->width + x0 + x * dx));
        above = row;
        *raw += 1 + size;
    }
    return 0;
}

static const uint8_t png_passes[8][4] = {{0, 0, 8, 8}, {0, 4, 8, 8}, {4, 0, 8, 4}, {0, 2, 4, 4},
                                         {2, 0, 4, 2}, {0, 1, 2, 2}, {1, 0, 2, 1}, {0, 0, 1, 1}};

static int png_decode(const uint8_t *bytes, int64_t count, uint8_t *rgb, int64_t height, int64_t width,
                      uint8_t *scratch) {
    png_header h;
    if (png_read_header(bytes, count, &h) || h.height != height || h.width != width) return 1;
    const int first = h.interlaced ? 0 : 7, end = h.interlaced ? 7 : 8;
    int64_t size = 0;
    for (int k = first; k < end; k++) {
        const uint8_t *p = png_passes[k];
        const int64_t rows = (height - p[0] + p[2] - 1) / p[2], columns = (width - p[1] + p[3] - 1) / p[3];
        if (rows > 0 && columns > 0) size += rows * (1 + (columns * h.depth * h.channels + 7) / 8);
    }
    const int64_t joined = png_join(bytes, count, h.at, scratch);
    uint8_t *raw = scratch + joined;
    if (inflate_zlib(scratch, joined, raw, size) != size) return 1;
    for (int k = first; k < end; k++) {
        const uint8_t *p = png_passes[k];
        if (png_pass(&h, &raw, rgb, p[0], p[1], p[2], p[3])) return 1;
    }
    return 0;
}
