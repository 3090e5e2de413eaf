/* Tagged image files, of both byte orders: bilevel, grey, palette, RGB and CMYK, strips and tiles, samples together
 * or in planes; plain, PackBits, LZW or deflate, with differences of neighbours. The first image counts. Greys of 16
 * and 32 bits are white from 255 on, as Pillow has them; of other samples of 16 bits the upper 8 count. Alpha is
 * left out.
 * Not supported: 64-bit offsets; CCITT and JPEG compression; YCbCr and Lab; samples of 12 bits, floats; greys and 16
 * bits with premultiplied alpha; signed samples that are compressed and big end first, which Pillow swaps; tiles of
 * which one takes 2 MiB more than the image. */

enum { tiff_room = 1 << 21 };
enum { tiff_plain = 1, tiff_lzw = 5, tiff_deflate = 8, tiff_packbits = 32773, tiff_old_deflate = 32946 };
enum { tiff_white_is_zero, tiff_grey, tiff_rgb, tiff_palette, tiff_cmyk = 5 };

/* A field of the directory: its type, how many values it has, and where they are; no values if it is missing. */
typedef struct tiff_field {
    int type;
    int64_t values, at;
} tiff_field;

typedef struct tiff_header {
    const uint8_t *bytes;
    int64_t count;
    int big;               /* byte order: big end first */
    int64_t height, width; /* as stored: orientation may exchange them */
    int coding, photo, turned, depth, samples, extra, planes, predictor, signed_samples, reversed, tiled;
    int64_t part_height, part_width; /* of a strip or tile */
    tiff_field offsets, sizes, colors;
} tiff_header;

static int64_t tiff_u16(const tiff_header *h, int64_t at) {
    const uint8_t *p = h->bytes + at;
    return h->big ? p[0] << 8 | p[1] : p[1] << 8 | p[0];
}

static int64_t tiff_u32(const tiff_header *h, int64_t at) {
    return h->big ? tiff_u16(h, at) << 16 | tiff_u16(h, at + 2) : tiff_u16(h, at + 2) << 16 | tiff_u16(h, at);
}

/* Read a value of a field that has it. */
static int64_t tiff_value(const tiff_header *h, const tiff_field *f, int64_t k) {
    if (f->type == 1) return h->bytes[f->at + k];
    return f->type == 3 ? tiff_u16(h, f->at + 2 * k) : tiff_u32(h, f->at + 4 * k);
}

/* Find a field.  Returns 1 if its values are no integers, or not in the file. */
static int tiff_find(const tiff_header *h, int tag, tiff_field *f) {
    const int64_t directory = tiff_u32(h, 4);
    f->values = 0;
    if (directory > h->count - 2) return 1;
    const int64_t entries = tiff_u16(h, directory);
    for (int64_t k = 0; k < entries; k++) {
        const int64_t at = directory + 2 + 12 * k;
        if (at + 12 > h->count) return 1;
        if (tiff_u16(h, at) != tag) continue;
        f->type = (int)tiff_u16(h, at + 2);
        f->values = tiff_u32(h, at + 4);
        const int size = f->type == 1 ? 1 : f->type == 3 ? 2 : f->type == 4 ? 4 : 0;
        if (!size || !f->values) return 1;
        f->at = f->values <= 4 / size ? at + 8 : tiff_u32(h, at + 8);
        return f->at > h->count || f->values > (h->count - f->at) / size;
    }
    return 0;
}

/* Read a field of one number.  Returns `missing` if it is not there, -1 if it is damaged. */
static int64_t tiff_number(const tiff_header *h, int tag, int64_t missing) {
    tiff_field f;
    return tiff_find(h, tag, &f) ? -1 : f.values ? tiff_value(h, &f, 0) : missing;
}

/* Read what a field says of every sample, which has to be the same. */
static int64_t tiff_common(const tiff_header *h, int tag, int64_t missing, int samples) {
    tiff_field f;
    if (tiff_find(h, tag, &f)) return -1;
    if (!f.values) return missing;
    const int64_t first = tiff_value(h, &f, 0);
    if (f.values > 1 && f.values < samples) return -1;
    for (int64_t k = 1; k < f.values && k < samples; k++)
        if (tiff_value(h, &f, k) != first) return -1;
    return first;
}

/* Tell whether samples are of a kind that is supported. */
static int tiff_known(const tiff_header *h, int64_t extras) {
    const int d = h->depth, base = h->photo == tiff_rgb ? 3 : h->photo == tiff_cmyk ? 4 : 1;
    if (h->samples != base + extras && !(h->photo == tiff_rgb && h->samples == 4 && !extras)) return 0;
    if (h->photo == tiff_rgb || h->photo == tiff_cmyk)
        return !h->signed_samples && h->samples <= 6 && (d == 8 || (d == 16 && h->samples <= 4 && h->extra != 1));
    if (h->photo > tiff_palette || h->extra == 1) return 0;
    if (extras && (d != 8 || h->samples != 2 || h->photo == tiff_white_is_zero)) return 0;
    if (h->signed_samples && (d < 8 || h->photo != tiff_grey)) return 0;
    if (h->signed_samples && d > 8 && h->big && h->coding != tiff_plain) return 0;
    if (d == 16 && h->photo == tiff_white_is_zero) return !h->big;
    if (d == 32 && !h->signed_samples && h->big) return 0;
    if (d >= 16) return h->photo == tiff_grey;
    return d == 1 || d == 2 || d == 4 || d == 8;
}

static int tiff_read_layout(tiff_header *h) {
    h->tiled = tiff_find(h, 273, &h->offsets) || !h->offsets.values;
    if (h->tiled && (tiff_find(h, 324, &h->offsets) || !h->offsets.values)) return 1;
    if (tiff_find(h, h->tiled ? 325 : 279, &h->sizes)) return 1;
    h->part_width = h->tiled ? tiff_number(h, 322, -1) : h->width;
    h->part_height = h->tiled ? tiff_number(h, 323, -1) : tiff_number(h, 278, h->height);
    if (h->part_width < 1 || h->part_height < 1) return 1;
    if (h->part_height > h->height) h->part_height = h->height;
    return 0;
}

static int tiff_read_header(const uint8_t *bytes, int64_t count, tiff_header *h) {
    memset(h, 0, sizeof *h);
    h->bytes = bytes;
    h->count = count;
    if (count < 14 || (memcmp(bytes, "II*", 4) && memcmp(bytes, "MM\0*", 4))) return 1;
    h->big = bytes[0] == 'M';
    tiff_field extras;
    const int64_t samples = tiff_number(h, 277, 1), planes = tiff_number(h, 284, 1);
    if (samples < 1 || samples > 6 || planes < 1 || planes > 2 || tiff_find(h, 338, &extras)) return 1;
    h->samples = (int)samples;
    h->width = tiff_number(h, 256, -1);
    h->height = tiff_number(h, 257, -1);
    h->depth = (int)tiff_common(h, 258, 1, h->samples);
    h->coding = (int)tiff_number(h, 259, tiff_plain);
    h->photo = (int)tiff_number(h, 262, tiff_white_is_zero);
    h->reversed = tiff_number(h, 266, 1) == 2;
    h->turned = (int)tiff_number(h, 274, 1);
    h->planes = planes == 2 ? h->samples : 1;
    h->predictor = (int)tiff_number(h, 317, 1);
    h->extra = extras.values ? (int)tiff_value(h, &extras, 0) : 0;
    const int64_t sort = tiff_common(h, 339, 1, h->samples);
    h->signed_samples = sort == 2;
    if (h->width < 1 || h->height < 1 || h->width > INT32_MAX || h->height > INT32_MAX) return 1;
    if (sort < 1 || sort > 2) return 1;
    if (h->depth < 1 || h->photo < 0 || !tiff_known(h, extras.values)) return 1;
    if (h->photo == tiff_palette) {
        if (tiff_find(h, 320, &h->colors) || h->colors.type != 3 || h->colors.values > 768) return 1;
        if (h->colors.values < 3) return 1;
    }
    return tiff_read_layout(h);
}

static int tiff_size(const uint8_t *bytes, int64_t count, int64_t *height, int64_t *width) {
    tiff_header h;
    if (tiff_read_header(bytes, count, &h)) return 1;
    const int turned = h.turned >= 5 && h.turned <= 8;
    *height = turned ? h.width : h.height;
    *width = turned ? h.height : h.width;
    return 0;
}

/* 8*h*w + count + 2097152 */
static int64_t tiff_scratch(int64_t height, int64_t width, int64_t count) {
    return 8 * height * width + count + tiff_room;
}

/* Undo PackBits.  Returns 1 if there is too little for the memory. */
static int tiff_unpack(const uint8_t *bytes, int64_t count, uint8_t *out, int64_t room) {
    int64_t done = 0;
    for (int64_t at = 0; done < room;) {
        if (at >= count) return 1;
        const int n = bytes[at++];
        int64_t size = n < 128 ? n + 1 : n > 128 ? 257 - n : 0;
        if (size && at + (n < 128 ? size : 1) > count) return 1;
        const int64_t kept = size < room - done ? size : room - done;
        if (n < 128) memcpy(out + done, bytes + at, (size_t)kept);
        else if (size) memset(out + done, bytes[at], (size_t)kept);
        at += n < 128 ? size : size ? 1 : 0;
        done += kept;
    }
    return 0;
}

/* Undo LZW.  Returns 1 if there is too little for the memory, or a code that means nothing. */
static int tiff_unlzw(const uint8_t *bytes, int64_t count, uint8_t *out, int64_t room) {
    enum { clear = 256, end = 257, all = 4096 };
    struct { uint16_t before, size; uint8_t last, first; } words[all];
    int64_t at = 0, done = 0;
    int next = end + 1, width = 9, held = 0, previous = -1;
    uint32_t bits = 0;
    for (int k = 0; k < 256; k++) {
        words[k].before = 0;
        words[k].size = 1;
        words[k].last = words[k].first = (uint8_t)k;
    }
    while (done < room) {
        for (; held < width; held += 8) {
            if (at >= count) return 1;
            bits = bits << 8 | bytes[at++];
        }
        held -= width;
        const int code = (int)(bits >> held & ((1u << width) - 1));
        if (code == end) return 1;
        if (code == clear) {
            next = end + 1;
            width = 9;
            previous = -1;
            continue;
        }
        if (previous < 0 ? code > 255 : code > next || (code == next && next == all)) return 1;
        if (previous >= 0 && next < all) {
            words[next].before = (uint16_t)previous;
            words[next].size = (uint16_t)(words[previous].size + 1);
            words[next].first = words[previous].first;
            words[next].last = words[code == next ? previous : code].first;
            if (++next == (1 << width) - 1 && width < 12) width++;
        }
        const int64_t size = words[code].size;
        for (int64_t k = size - 1, word = code; k >= 0; k--, word = words[word].before)
            if (done + k < room) out[done + k] = words[word].last;
        done += size;
        previous = code;
    }
    return 0;
}

static uint8_t tiff_reverse(uint8_t c) {
    const int pairs = (c & 0xF0) >> 4 | (c & 0x0F) << 4, halves = (pairs & 0xCC) >> 2 | (pairs & 0x33) << 2;
    return (uint8_t)((halves & 0xAA) >> 1 | (halves & 0x55) << 1);
}

static int64_t tiff_sample(const tiff_header *h, const uint8_t *row, int64_t k) {
    const int64_t bit = k * h->depth;
    const uint8_t *p = row + bit / 8;
    if (h->depth < 8) return *p >> (8 - h->depth - bit % 8) & ((1 << h->depth) - 1);
    if (h->depth == 8) return *p;
    if (h->depth == 16) return h->big ? p[0] << 8 | p[1] : p[1] << 8 | p[0];
    const uint32_t high = h->big ? (uint32_t)p[0] << 8 | p[1] : (uint32_t)p[3] << 8 | p[2];
    return (int64_t)(high << 16 | (uint32_t)(h->big ? p[2] << 8 | p[3] : p[1] << 8 | p[0]));
}

/* Replace differences of neighbours by samples. `step`: samples of a pixel that stand together. */
static void tiff_add_up(const tiff_header *h, uint8_t *row, int64_t samples, int step) {
    const int size = h->depth / 8;
    for (int64_t k = step; k < samples; k++) {
        const uint32_t sum = (uint32_t)(tiff_sample(h, row, k) + tiff_sample(h, row, k - step));
        for (int b = 0; b < size; b++) row[k * size + (h->big ? size - 1 - b : b)] = (uint8_t)(sum >> 8 * b);
    }
}

/* Find the samples of a strip or tile, decompressed into memory if need be, of `rows` rows of `size` bytes. */
static const uint8_t *tiff_part(const tiff_header *h, int64_t number, int64_t rows, int64_t size, int64_t used,
                                int64_t *budget, uint8_t *memory) {
    const int64_t at = tiff_value(h, &h->offsets, number), room = rows * size;
    if (at > h->count) return 0;
    int64_t given = h->count - at;
    if (h->coding != tiff_plain && h->sizes.values > number && tiff_value(h, &h->sizes, number) < given)
        given = tiff_value(h, &h->sizes, number);
    if (h->coding == tiff_plain) {
        if ((rows - 1) * size + used > given) return 0;
        if (!h->reversed) return h->bytes + at;
        for (int64_t k = 0; k < room; k++) memory[k] = k < given ? tiff_reverse(h->bytes[at + k]) : 0;
        return memory;
    }
    const uint8_t *from = h->bytes + at;
    if ((*budget -= given) < 0) return 0;
    if (h->reversed) {
        uint8_t *turned = memory + room;
        for (int64_t k = 0; k < given; k++) turned[k] = tiff_reverse(from[k]);
        from = turned;
    }
    if (h->coding == tiff_packbits) return tiff_unpack(from, given, memory, room) ? 0 : memory;
    if (h->coding == tiff_lzw) {
        if (tiff_unlzw(from, given, memory, room)) return 0;
    } else if (h->coding != tiff_deflate && h->coding != tiff_old_deflate) {
        return 0;
    } else if (inflate_zlib(from, given, memory, room) != room) {
        return 0;
    }
    const int step = h->planes > 1 ? 1 : h->samples;
    for (int64_t y = 0; h->predictor == 2 && y < rows; y++)
        tiff_add_up(h, memory + y * size, h->part_width * step, step);
    return memory;
}

static uint8_t tiff_grey_of(const tiff_header *h, int64_t value) {
    if (h->depth >= 16) {
        const int negative = h->signed_samples && value >> (h->depth - 1);
        return (uint8_t)(negative ? 0 : value < 255 ? value : 255);
    }
    if (h->depth < 8) value *= 255 / ((1 << h->depth) - 1);
    return (uint8_t)(h->photo == tiff_white_is_zero ? 255 - value : value);
}

/* Write the color of a pixel whose samples these are, those of 16 bits by their upper halves. */
static void tiff_color(const tiff_header *h, const int64_t *samples, uint8_t *rgb) {
    if (h->photo == tiff_rgb) {
        const int64_t alpha = h->extra == 1 ? samples[3] : 255;
        for (int c = 0; c < 3; c++) {
            const int64_t value = alpha ? samples[c] * 255 / alpha : 0;
            rgb[c] = (uint8_t)(value < 255 ? value : 255);
        }
    } else if (h->photo == tiff_cmyk) {
        for (int c = 0; c < 3; c++) {
            const int64_t light = 255 - samples[3], taken = samples[c] * light + 128;
            rgb[c] = (uint8_t)(light - ((taken >> 8) + taken) / 256);
        }
    } else if (h->photo == tiff_palette) {
        const int64_t colors = h->colors.values / 3;
        for (int c = 0; c < 3; c++)
            rgb[c] = (uint8_t)(samples[0] < colors ? tiff_value(h, &h->colors, c * colors + samples[0]) >> 8 : 0);
    } else {
        memset(rgb, tiff_grey_of(h, samples[0]), 3);
    }
}

/* Write a row of a strip or tile of all samples. `rgb`: where its first pixel goes; `step`: to the next one. */
static void tiff_row(const tiff_header *h, const uint8_t *row, int64_t width, uint8_t *rgb, int64_t step) {
    const int high = h->depth == 16 && h->samples > 1 ? 8 : 0;
    int64_t samples[6];
    for (int64_t x = 0; x < width; x++, rgb += step) {
        for (int c = 0; c < h->samples; c++) samples[c] = tiff_sample(h, row, x * h->samples + c) >> high;
        tiff_color(h, samples, rgb);
    }
}

/* Write one sample of each pixel of a row into that channel, CMYK's as it is; black then comes last. */
static void tiff_plane_row(const tiff_header *h, const uint8_t *row, int64_t width, int plane, uint8_t *rgb,
                           int64_t step) {
    const int high = h->depth == 16 ? 8 : 0;
    for (int64_t x = 0; x < width; x++, rgb += step) {
        const int64_t value = tiff_sample(h, row, x) >> high;
        if (h->photo == tiff_cmyk && plane == 3) {
            const int64_t samples[4] = {rgb[0], rgb[1], rgb[2], value};
            tiff_color(h, samples, rgb);
        } else if (h->photo == tiff_rgb && plane == 3 && h->extra == 1) {
            const int64_t samples[4] = {rgb[0], rgb[1], rgb[2], value};
            tiff_color(h, samples, rgb);
        } else if (h->photo == tiff_rgb || h->photo == tiff_cmyk) {
            if (plane < 3) rgb[plane] = (uint8_t)value;
        } else if (plane == 0) {
            tiff_color(h, &value, rgb);
        }
    }
}

/* Find where the first pixel goes, and the steps to the next one in a row and in a column, in bytes. */
static void tiff_turn(const tiff_header *h, int64_t *start, int64_t *across, int64_t *down) {
    const int swapped = h->turned >= 5 && h->turned <= 8;
    const int64_t width = swapped ? h->height : h->width, last_x = h->width - 1, last_y = h->height - 1;
    const int mirrored = h->turned == 2 || h->turned == 3 || h->turned == 7 || h->turned == 8;
    const int upside = h->turned == 3 || h->turned == 4 || h->turned == 6 || h->turned == 7;
    *across = 3 * (swapped ? width : 1) * (mirrored ? -1 : 1);
    *down = 3 * (swapped ? 1 : width) * (upside ? -1 : 1);
    *start = (mirrored ? -*across * last_x : 0) + (upside ? -*down * last_y : 0);
}

static int tiff_decode(const uint8_t *bytes, int64_t count, uint8_t *rgb, int64_t height, int64_t width,
                       uint8_t *scratch) {
    tiff_header h;
    int64_t start, across, down, number = 0, budget = 4 * count + 65536;
    if (tiff_read_header(bytes, count, &h)) return 1;
    const int swapped = h.turned >= 5 && h.turned <= 8;
    if (height != (swapped ? h.width : h.height) || width != (swapped ? h.height : h.width)) return 1;
    const int coded = h.coding == tiff_lzw || h.coding == tiff_deflate || h.coding == tiff_old_deflate;
    if (coded && h.predictor != 1 && (h.predictor != 2 || h.depth < 8)) return 1;
    const int64_t columns = (h.width - 1) / h.part_width + 1, strips = (h.height - 1) / h.part_height + 1;
    const int64_t bits = h.depth * (h.planes > 1 ? 1 : h.samples), size = (h.part_width * bits + 7) / 8;
    if (h.offsets.values / h.planes / columns < strips) return 1;
    if (size > (8 * height * width + tiff_room) / h.part_height) return 1;
    tiff_turn(&h, &start, &across, &down);
    for (int plane = 0; plane < h.planes; plane++) {
        for (int64_t y = 0; y < h.height; y += h.part_height) {
            const int64_t rows = h.height - y < h.part_height ? h.height - y : h.part_height;
            for (int64_t x = 0; x < h.width; x += h.part_width) {
                const int64_t n = h.width - x < h.part_width ? h.width - x : h.part_width;
                const uint8_t *part = tiff_part(&h, number++, rows, size, (n * bits + 7) / 8, &budget, scratch);
                if (!part) return 1;
                for (int64_t k = 0; k < rows; k++) {
                    uint8_t *to = rgb + start + (y + k) * down + x * across;
                    if (h.planes > 1) tiff_plane_row(&h, part + k * size, n, plane, to, across);
                    else tiff_row(&h, part + k * size, n, to, across);
                }
            }
        }
    }
    return 0;
}
