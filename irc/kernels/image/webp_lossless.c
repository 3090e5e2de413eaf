/* WebP, lossless: pixels and transforms (specification of the lossless bitstream, sections 3 to 6).
 *
 * A pixel is a number 0xAARRGGBB. The image and the smaller images that say how to decode it are coded in the same way:
 * literals, copies of earlier pixels and pixels of a cache. */

/* State of decoding. A group is five codes, for green, red, blue, alpha and distances; `groups` are their places in the
 * pool. */
typedef struct {
    webp_reader reader;
    webp_pool pool;
    uint32_t *cache;
    int cache_bits;
    uint32_t *groups;
    int64_t group_limit;
    uint32_t *meta; /* image of the numbers of groups, if there is more than one */
    int meta_bits;
    int64_t meta_columns;
    webp_transform transforms[4];
    int transform_count;
} webp_stream;

/* Count the blocks of 2^bits pixels in a row or column. */
static int64_t webp_blocks(int64_t size, int bits) {
    return (size + (INT64_C(1) << bits) - 1) >> bits;
}

/* Read the parameter of the cache of colours. Returns 1 if it is invalid. */
static int webp_read_cache(webp_stream *s) {
    s->cache_bits = 0;
    if (!webp_read_bits(&s->reader, 1)) return 0;
    s->cache_bits = (int)webp_read_bits(&s->reader, 4);
    if (s->cache_bits < 1 || s->cache_bits > 11) return 1;
    memset(s->cache, 0, sizeof *s->cache << s->cache_bits);
    return 0;
}

/* Read groups of codes; the pool holds nothing else. Returns 1 if they are damaged or there is no room for them. */
static int webp_read_groups(webp_stream *s, int64_t count) {
    s->pool.count = 0;
    for (int64_t i = 0; i < 5 * count; i++) {
        const int alphabet = i % 5 == 0 ? 280 + (s->cache_bits ? 1 << s->cache_bits : 0) : i % 5 == 4 ? 40 : 256;
        s->groups[i] = (uint32_t)s->pool.count;
        if (webp_read_code(&s->reader, &s->pool, alphabet)) return 1;
    }
    return 0;
}

/* Read a length or a distance, of which the symbol is known (section 5.2.2). */
static int64_t webp_read_extent(webp_reader *r, uint32_t symbol) {
    if (symbol < 4) return symbol + 1;
    const int extra = (int)(symbol - 2) >> 1;
    return (int64_t)((2 + (symbol & 1)) << extra) + webp_read_bits(r, extra) + 1;
}

/* Read a distance in pixels in an image of `width` columns. */
static int64_t webp_read_distance(webp_reader *r, const uint16_t *code, int64_t width) {
    const int64_t extent = webp_read_extent(r, webp_read_symbol(r, code));
    if (extent > 120) return extent - 120;
    const int8_t *near = webp_near_offsets[extent - 1];
    const int64_t distance = near[0] + near[1] * width;
    return distance < 1 ? 1 : distance;
}

/* Remember a pixel in the cache of colours. */
static inline void webp_remember(webp_stream *s, uint32_t pixel) {
    if (s->cache_bits) s->cache[(0x1e35a7bdu * pixel) >> (32 - s->cache_bits)] = pixel;
}

/* Read the red, blue and alpha of a literal of which green is known. */
static uint32_t webp_read_literal(webp_stream *s, const uint32_t *group, uint32_t green) {
    const uint16_t *codes = s->pool.numbers;
    const uint32_t red = webp_read_symbol(&s->reader, codes + group[1]);
    const uint32_t blue = webp_read_symbol(&s->reader, codes + group[2]);
    const uint32_t alpha = webp_read_symbol(&s->reader, codes + group[3]);
    return alpha << 24 | red << 16 | green << 8 | blue;
}

/* Decode the pixels of an image. Returns 1 if it is damaged. */
static int webp_read_pixels(webp_stream *s, uint32_t *out, int64_t height, int64_t width) {
    webp_reader *r = &s->reader;
    const int64_t count = height * width;
    int64_t row = 0, column = 0;
    for (int64_t at = 0; at < count;) {
        const uint32_t *group = s->groups;
        if (s->meta) group += 5 * s->meta[(row >> s->meta_bits) * s->meta_columns + (column >> s->meta_bits)];
        const uint32_t symbol = webp_read_symbol(r, s->pool.numbers + group[0]);
        int64_t run = 1;
        if (symbol < 256 || symbol >= 280) {
            out[at] = symbol < 256 ? webp_read_literal(s, group, symbol) : s->cache[symbol - 280];
            webp_remember(s, out[at++]);
        } else {
            run = webp_read_extent(r, symbol - 256);
            const int64_t distance = webp_read_distance(r, s->pool.numbers + group[4], width);
            if (distance > at || run > count - at) return 1;
            for (const int64_t end = at + run; at < end; at++) {
                out[at] = out[at - distance];
                webp_remember(s, out[at]);
            }
        }
        if (webp_overrun(r)) return 1;
        for (column += run; column >= width; column -= width) row++;
    }
    return 0;
}

/* Read one of the smaller images. Returns 1 if it is damaged. */
static int webp_read_small_image(webp_stream *s, uint32_t *out, int64_t height, int64_t width) {
    return webp_read_cache(s) || webp_read_groups(s, 1) || webp_read_pixels(s, out, height, width);
}

/* Read the palette of a transform. Returns 1 if it is damaged. */
static int webp_read_palette(webp_stream *s, webp_transform *t) {
    const int64_t colors = 1 + (int64_t)webp_read_bits(&s->reader, 8);
    t->bits = colors > 16 ? 0 : colors > 4 ? 1 : colors > 2 ? 2 : 3;
    memset(t->data, 0, 256 * sizeof *t->data); /* indices past the end are of transparent black */
    if (webp_read_small_image(s, t->data, 1, colors)) return 1;
    for (int64_t i = 1; i < colors; i++) t->data[i] = webp_add_pixels(t->data[i], t->data[i - 1]);
    return 0;
}

/* Read the transforms (section 4). `room` has one place for the data of each type; `width` becomes that of the coded
 * pixels. Returns 1 if they are damaged. */
static int webp_read_transforms(webp_stream *s, uint32_t *const room[4], int64_t height, int64_t *width) {
    int seen = 0;
    while (webp_read_bits(&s->reader, 1)) {
        const int type = (int)webp_read_bits(&s->reader, 2);
        if (seen >> type & 1) return 1;
        seen |= 1 << type;
        webp_transform *t = s->transforms + s->transform_count++;
        *t = (webp_transform){type, 0, *width, 0, room[type]};
        if (type == WEBP_INDEX) {
            if (webp_read_palette(s, t)) return 1;
            *width = webp_blocks(*width, t->bits);
        } else if (type != WEBP_SUBTRACT_GREEN) {
            t->bits = 2 + (int)webp_read_bits(&s->reader, 3);
            t->columns = webp_blocks(*width, t->bits);
            if (webp_read_small_image(s, t->data, webp_blocks(height, t->bits), t->columns)) return 1;
        }
    }
    return webp_overrun(&s->reader);
}

/* Read the image of the numbers of groups (section 6.2.2). Returns their count, or 0 if it is damaged. */
static int64_t webp_read_meta(webp_stream *s, uint32_t *room, int64_t height, int64_t width) {
    if (!webp_read_bits(&s->reader, 1)) return 1;
    const int cache_bits = s->cache_bits;
    s->meta_bits = 2 + (int)webp_read_bits(&s->reader, 3);
    s->meta_columns = webp_blocks(width, s->meta_bits);
    const int64_t count = webp_blocks(height, s->meta_bits) * s->meta_columns;
    if (webp_read_small_image(s, room, webp_blocks(height, s->meta_bits), s->meta_columns)) return 0;
    int64_t groups = 0;
    for (int64_t i = 0; i < count; i++) {
        room[i] = room[i] >> 8 & 0xffff;
        if (room[i] >= groups) groups = room[i] + 1;
    }
    s->meta = room;
    s->cache_bits = cache_bits;
    if (cache_bits) memset(s->cache, 0, sizeof *s->cache << cache_bits);
    return groups <= s->group_limit ? groups : 0;
}

/* Read the size of an image. Returns 1 if these bytes begin no lossless image. */
static int webp_lossless_size(const uint8_t *bytes, int64_t count, int64_t *height, int64_t *width) {
    if (count < 5 || bytes[0] != 0x2f || bytes[4] >> 5 != 0) return 1;
    *width = 1 + (bytes[1] | (bytes[2] & 63) << 8);
    *height = 1 + (bytes[2] >> 6 | bytes[3] << 2 | (bytes[4] & 15) << 10);
    return 0;
}

/* Write pixels as RGB; `pitch` counts the bytes from row to row. */
static void webp_write_pixels(const uint32_t *pixels, uint8_t *rgb, int64_t pitch, int64_t height, int64_t width) {
    for (int64_t row = 0; row < height; row++) {
        uint8_t *out = rgb + row * pitch;
        for (int64_t x = 0; x < width; x++, out += 3) {
            const uint32_t pixel = *pixels++;
            out[0] = (uint8_t)(pixel >> 16);
            out[1] = (uint8_t)(pixel >> 8);
            out[2] = (uint8_t)pixel;
        }
    }
}

/* Decode a lossless image of height x width into RGB. Returns 1 if it is damaged or its codes exceed the pool. */
static int webp_lossless_decode(const uint8_t *bytes, int64_t count, uint8_t *rgb, int64_t pitch, int64_t height,
                                int64_t width, uint8_t *scratch) {
    webp_stream s;
    memset(&s, 0, sizeof s);
    s.reader = (webp_reader){bytes + 5, bytes + count, 0, 0, 0};
    const int64_t small = 4 * webp_blocks(height, 2) * webp_blocks(width, 2);
    uint32_t *const pixels = (uint32_t *)(void *)webp_take(&scratch, 4 * height * width);
    uint32_t *const meta = (uint32_t *)(void *)webp_take(&scratch, small);
    uint32_t *const room[4] = {
        [WEBP_PREDICT] = (uint32_t *)(void *)webp_take(&scratch, small),
        [WEBP_COLOR] = (uint32_t *)(void *)webp_take(&scratch, small),
        [WEBP_INDEX] = (uint32_t *)(void *)webp_take(&scratch, 4 * 256),
    };
    s.cache = (uint32_t *)(void *)webp_take(&scratch, 4 * 2048);
    /* A group takes at least 20 bits of the file. */
    s.group_limit = 2 * count / 5 + 1 < 65536 ? 2 * count / 5 + 1 : 65536;
    s.groups = (uint32_t *)(void *)webp_take(&scratch, 20 * s.group_limit);
    /* Codes that are of use stay far below: libwebp's take less than 1 number for a pixel. */
    s.pool.size = 2 * height * width + 131072;
    s.pool.numbers = (uint16_t *)(void *)webp_take(&scratch, 2 * s.pool.size);
    int64_t coded = width;
    if (webp_read_transforms(&s, room, height, &coded) || webp_read_cache(&s)) return 1;
    const int64_t groups = webp_read_meta(&s, meta, height, coded);
    if (groups == 0 || webp_read_groups(&s, groups) || webp_read_pixels(&s, pixels, height, coded)) return 1;
    webp_invert_transforms(s.transforms, s.transform_count, pixels, height);
    webp_write_pixels(pixels, rgb, pitch, height, width);
    return 0;
}
