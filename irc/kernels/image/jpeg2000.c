/* JPEG 2000 (ITU-T T.800): raw codestreams and JP2 files, into RGB as Pillow with OpenJPEG decodes them.
 * Read: one to four components of up to 16 bits (grey, grey and alpha, RGB, RGB and alpha, YCbCr, CMYK), both wavelets
 * and component transforms, tiles in any number of parts, layers, all progressions and their changes (POC), precincts,
 * all styles of code blocks of T.800, COC and QCC. A file is refused with 1 if it has palettes, subsampled components,
 * packed packet headers (PPM, PPT), more than 16 bits, extensions (HTJ2K, T.801), other
 * colour spaces, or more code blocks, precincts or packets than the scratch memory of `jpeg2000_scratch` has room for
 * (about precincts below 8 x 8). */

/* Where the codestream of a file is and how its samples are to be understood. */
typedef struct {
    int64_t start, end;
    int64_t height, width;            /* as JP2 says; 0 in a raw codestream */
    int32_t components, depth, space; /* JP2: its components, bits and enumerated colour space; 0 if not said */
    int32_t palette;
} jpeg2000_file;

/* One tile-part: from after its SOT segment to its end. */
typedef struct {
    uint32_t start, end, next;
} jpeg2000_part;

typedef struct {
    uint32_t first, last;
} jpeg2000_parts;

#define JPEG2000_NO_PART UINT32_MAX

/* Read a box header. Returns 0, or 1 if it does not fit between `at` and `end`. */
static int jpeg2000_box(const uint8_t *bytes, int64_t at, int64_t end, uint32_t *type, int64_t *inside,
                        int64_t *after) {
    if (end - at < 8) return 1;
    int64_t length = jpeg2000_u32(bytes + at), header = 8;
    *type = jpeg2000_u32(bytes + at + 4);
    if (length == 1) {
        if (end - at < 16 || jpeg2000_u32(bytes + at + 8)) return 1;
        length = jpeg2000_u32(bytes + at + 12);
        header = 16;
    }
    if (length == 0) length = end - at;
    if (length < header || length > end - at) return 1;
    *inside = at + header;
    *after = at + length;
    return 0;
}

/* Read the boxes inside of jp2h. */
static int jpeg2000_read_jp2_header(const uint8_t *bytes, int64_t at, int64_t end, jpeg2000_file *file) {
    for (int64_t inside, after; at < end; at = after) {
        uint32_t type;
        if (jpeg2000_box(bytes, at, end, &type, &inside, &after)) return 1;
        const uint8_t *box = bytes + inside;
        if (type == 0x69686472) { /* ihdr */
            if (after - inside != 14) return 1;
            file->height = jpeg2000_u32(box);
            file->width = jpeg2000_u32(box + 4);
            file->components = (int32_t)jpeg2000_u16(box + 8);
            file->depth = (box[10] & 127) + 1;
        } else if (type == 0x636F6C72) { /* colr; only the first one counts */
            if (after - inside < 3) return 1;
            if (!file->space && box[0] == 1 && after - inside >= 7)
                file->space = (int32_t)jpeg2000_least(jpeg2000_u32(box + 3), 255);
        } else if (type == 0x70636C72) { /* pclr */
            file->palette = 1;
        }
    }
    return !file->components;
}

/* Find the codestream. Returns 0, or 1 if these bytes are neither a codestream nor a JP2 file. */
static int jpeg2000_find(const uint8_t *bytes, int64_t count, jpeg2000_file *file) {
    static const uint8_t signature[12] = {0, 0, 0, 12, 'j', 'P', ' ', ' ', 13, 10, 0x87, 10};
    memset(file, 0, sizeof *file);
    if (count > UINT32_MAX - 16) return 1;
    file->end = count;
    if (count >= 4 && jpeg2000_u32(bytes) == 0xFF4FFF51) return 0;
    if (count < 12 || memcmp(bytes, signature, 12)) return 1;
    for (int64_t at = 12, inside, after; at < count; at = after) {
        uint32_t type;
        if (jpeg2000_box(bytes, at, count, &type, &inside, &after)) return 1;
        if (type == 0x6A703268 && !file->components && jpeg2000_read_jp2_header(bytes, inside, after, file))
            return 1;                     /* jp2h */
        if (type != 0x6A703263) continue; /* jp2c */
        file->start = inside;
        file->end = after;
        return !file->components || after - inside < 4 || jpeg2000_u32(bytes + inside) != 0xFF4FFF51;
    }
    return 1;
}

/* Read the grid of a file: SIZ follows SOC. Returns where the next marker is, or -1. */
static int64_t jpeg2000_read_size(const uint8_t *bytes, const jpeg2000_file *file, jpeg2000_grid *grid) {
    int64_t at = file->start + 4, left = file->end - at;
    if (left < 2) return -1;
    int64_t length = jpeg2000_u16(bytes + at);
    if (length < 2 || length > left || jpeg2000_read_grid(bytes + at + 2, length - 2, grid)) return -1;
    if (file->components && (file->components != grid->components || file->height != grid->y1 - grid->y0 ||
                             file->width != grid->x1 - grid->x0))
        return -1;
    return at + length;
}

/* Read the size of the image. Returns 0, or 1 if these bytes are no JPEG 2000. */
static int jpeg2000_size(const uint8_t *bytes, int64_t count, int64_t *height, int64_t *width) {
    jpeg2000_file file;
    jpeg2000_grid grid;
    if (jpeg2000_find(bytes, count, &file) || jpeg2000_read_size(bytes, &file, &grid) < 0) return 1;
    *height = grid.y1 - grid.y0;
    *width = grid.x1 - grid.x0;
    return 0;
}

/* Scratch memory: 32 h w + 512 (h + w) + 16 count + 262144. */
static int64_t jpeg2000_scratch(int64_t height, int64_t width, int64_t count) {
    return 32 * height * width + 512 * (height + width) + 16 * count + 262144;
}

/* Find the parts of all tiles. */
static int jpeg2000_find_parts(const uint8_t *bytes, int64_t at, int64_t end, int64_t tiles, jpeg2000_parts *list,
                               jpeg2000_part *parts, int64_t limit) {
    for (int64_t k = 0; k < tiles; k++) list[k].first = list[k].last = JPEG2000_NO_PART;
    for (int64_t number = 0; end - at >= 2 && jpeg2000_u16(bytes + at) != 0xFFD9; number++) {
        if (number >= limit || end - at < 14 || jpeg2000_u32(bytes + at) != 0xFF90000A) return 1;
        int64_t tile = jpeg2000_u16(bytes + at + 4), length = jpeg2000_u32(bytes + at + 6);
        if (length == 0) { /* up to the end of the codestream */
            if (jpeg2000_u16(bytes + end - 2) != 0xFFD9) return 1;
            length = end - 2 - at;
        }
        if (tile >= tiles || length < 14 || length > end - at) return 1;
        parts[number] = (jpeg2000_part){(uint32_t)(at + 12), (uint32_t)(at + length), JPEG2000_NO_PART};
        if (list[tile].first == JPEG2000_NO_PART) list[tile].first = (uint32_t)number;
        else parts[list[tile].last].next = (uint32_t)number;
        list[tile].last = (uint32_t)number;
        at += length;
    }
    if (end - at < 2) return 1;
    for (int64_t k = 0; k < tiles; k++)
        if (list[k].first == JPEG2000_NO_PART) return 1;
    return 0;
}

/* Read the headers of the parts of a tile and collect their packets in `packets`. */
static int jpeg2000_collect(const uint8_t *bytes, const jpeg2000_part *parts, uint32_t first, jpeg2000_tile *tile,
                            uint8_t *packets) {
    tile->bytes = packets;
    tile->at = tile->end = tile->ended = 0;
    for (uint32_t k = first; k != JPEG2000_NO_PART; k = parts[k].next) {
        int64_t at = jpeg2000_read_header(bytes, parts[k].start, parts[k].end, 0xFF93, tile->grid->components,
                                          &tile->parameters, JPEG2000_TILE_RANK);
        if (at < 0) return 1;
        at += 2;
        memcpy(packets + tile->end, bytes + at, (size_t)(parts[k].end - at));
        tile->end += parts[k].end - at;
    }
    return 0;
}

/* Bring a sample to 8 bits as Pillow does: without a check that rounding stays within them. */
static uint8_t jpeg2000_byte(int32_t value, int32_t precision, int32_t is_signed) {
    int32_t shift = precision - 8;
    if (is_signed) value += 1 << (precision - 1);
    if (shift <= 0) return (uint8_t)(value << -shift);
    return (uint8_t)((value + (1 << (shift - 1))) >> shift);
}

static uint8_t jpeg2000_clip(int32_t value) { return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value); }

/* Scale a chroma sample by hundred thousandths as Pillow's tables do: to 64ths, with half of one added before the
 * fraction is cut off. */
static int32_t jpeg2000_chroma(int32_t value, int32_t factor) { return (factor * 64 * (value - 128) + 50000) / 100000; }

/* Turn the samples of one pixel, each of 8 bits, into RGB. */
static void jpeg2000_pixel(const uint8_t *sample, int32_t components, int32_t space, uint8_t *rgb) {
    if (components < 3) {
        rgb[0] = rgb[1] = rgb[2] = sample[0];
    } else if (space == 18) { /* YCbCr */
        rgb[0] = jpeg2000_clip(sample[0] + (jpeg2000_chroma(sample[2], 140200) >> 6));
        rgb[1] =
            jpeg2000_clip(sample[0] + ((jpeg2000_chroma(sample[1], -34414) + jpeg2000_chroma(sample[2], -71414)) >> 6));
        rgb[2] = jpeg2000_clip(sample[0] + (jpeg2000_chroma(sample[1], 177200) >> 6));
    } else if (space == 12) { /* CMYK */
        for (int32_t c = 0; c < 3; c++) {
            int32_t light = 255 - sample[3], product = sample[c] * light + 128;
            rgb[c] = jpeg2000_clip(light - (((product >> 8) + product) >> 8));
        }
    } else {
        memcpy(rgb, sample, 3);
    }
}

/* Paint a tile into the image. */
static void jpeg2000_paint(const jpeg2000_tile *tile, int32_t wanted, int32_t deep, int32_t space, uint8_t *rgb) {
    const jpeg2000_grid *grid = tile->grid;
    int64_t width = tile->area.x1 - tile->area.x0;
    for (int64_t y = tile->area.y0; y < tile->area.y1; y++) {
        uint8_t *to = rgb + 3 * ((y - grid->y0) * (grid->x1 - grid->x0) + tile->area.x0 - grid->x0);
        int64_t at = (y - tile->area.y0) * width;
        for (int64_t x = 0; x < width; x++, at++, to += 3) {
            uint8_t sample[JPEG2000_COMPONENTS];
            for (int32_t c = 0; c < wanted; c++)
                sample[c] = jpeg2000_byte(tile->component[c].plane[at].whole, grid->precision[c], grid->is_signed[c]);
            if (deep) { /* grey of 16 bits, which is clipped to 8 */
                int32_t value =
                    tile->component[0].plane[at].whole + (grid->is_signed[0] ? 1 << (grid->precision[0] - 1) : 0);
                sample[0] = jpeg2000_clip(value << (16 - grid->precision[0]));
            }
            jpeg2000_pixel(sample, grid->components, space, to);
        }
    }
}

/* Check the colours of a file. Returns the number of components that are to be decoded, or 0 if it is refused. */
static int32_t jpeg2000_wanted(const jpeg2000_file *file, int32_t components) {
    int32_t space =
        file->space; /* 12 CMYK, 17 grey, 18 YCbCr, 24 its extended form; others are taken for RGB or grey */
    if (space == 24) return 0;
    if (components < 3) return space == 12 || space == 18 || (file->palette && space != 17) ? 0 : 1;
    if (space == 12) return components == 4 ? 4 : 0;
    return space == 17 && components == 3 ? 0 : 3;
}

/* What decoding takes of the scratch memory for the whole file. */
typedef struct {
    jpeg2000_parts *list;
    jpeg2000_part *parts;
    jpeg2000_coder *coder;
    jpeg2000_sample *line;
    uint8_t *packets, *segment;
    jpeg2000_chunk *chunks;
    int64_t chunk_limit, part_limit;
} jpeg2000_tables;

static int jpeg2000_take_tables(jpeg2000_memory *memory, jpeg2000_tables *tables, int64_t tiles, int64_t count,
                                int64_t longest) {
    tables->part_limit = count / 14 + 1;
    tables->chunk_limit = count;
    tables->list = jpeg2000_take(memory, tiles, sizeof(jpeg2000_parts));
    tables->parts = jpeg2000_take(memory, tables->part_limit, sizeof(jpeg2000_part));
    tables->coder = jpeg2000_take(memory, 1, sizeof(jpeg2000_coder));
    tables->line = jpeg2000_take(memory, longest * JPEG2000_LANES, sizeof(jpeg2000_sample));
    tables->packets = jpeg2000_take(memory, count, 1);
    tables->segment = jpeg2000_take(memory, count + 2, 1);
    tables->chunks = jpeg2000_take(memory, tables->chunk_limit, sizeof(jpeg2000_chunk));
    if (!tables->list || !tables->parts || !tables->coder || !tables->line || !tables->packets || !tables->segment ||
        !tables->chunks)
        return 1;
    jpeg2000_coder_tables(tables->coder);
    return 0;
}

/* Decode one tile into the planes of its components. */
static int jpeg2000_decode_tile(const uint8_t *bytes, jpeg2000_tile *tile, int64_t number, int32_t wanted,
                                const jpeg2000_tables *tables, jpeg2000_memory memory) {
    const jpeg2000_grid *grid = tile->grid;
    int64_t x = grid->tile_x0 + number % grid->across * grid->tile_width,
            y = grid->tile_y0 + number / grid->across * grid->tile_height;
    tile->area = (jpeg2000_area){jpeg2000_most(x, grid->x0), jpeg2000_most(y, grid->y0),
                                 jpeg2000_least(x + grid->tile_width, grid->x1),
                                 jpeg2000_least(y + grid->tile_height, grid->y1)};
    tile->chunks = tables->chunks;
    tile->chunk_count = 0;
    tile->chunk_limit = tables->chunk_limit;
    if (jpeg2000_collect(bytes, tables->parts, tables->list[number].first, tile, tables->packets)) return 1;
    if (jpeg2000_lay_out(&memory, tile, wanted) || jpeg2000_packets(tile)) return 1;
    for (int32_t c = 0; c < wanted; c++)
        jpeg2000_decode_component(tile, tile->component + c, tables->coder, tables->segment);
    return jpeg2000_reconstruct(tile, wanted, tables->line);
}

/* Decode an image into height x width x 3 bytes. Returns 0, or 1 if the file is damaged or refused. */
static int jpeg2000_decode(const uint8_t *bytes, int64_t count, uint8_t *rgb, int64_t height, int64_t width,
                           uint8_t *scratch) {
    jpeg2000_file file;
    jpeg2000_grid grid;
    jpeg2000_parameters parameters;
    jpeg2000_tables tables;
    jpeg2000_tile tile;
    memset(&parameters, 0, sizeof parameters);
    if (jpeg2000_find(bytes, count, &file)) return 1;
    int64_t at = jpeg2000_read_size(bytes, &file, &grid);
    if (at < 0 || grid.y1 - grid.y0 != height || grid.x1 - grid.x0 != width) return 1;
    at = jpeg2000_read_header(bytes, at, file.end, 0xFF90, grid.components, &parameters, JPEG2000_MAIN_RANK);
    int32_t wanted = jpeg2000_wanted(&file, grid.components);
    int32_t deep = grid.components == 1 && (file.components ? file.depth : grid.precision[0]) > 8;
    if (at < 0 || !wanted) return 1;
    jpeg2000_memory memory = {scratch, jpeg2000_scratch(height, width, count)};
    int64_t tiles = grid.across * grid.down;
    if (tiles > count / 14 || jpeg2000_take_tables(&memory, &tables, tiles, count, jpeg2000_most(height, width)))
        return 1;
    if (jpeg2000_find_parts(bytes, at, file.end, tiles, tables.list, tables.parts, tables.part_limit)) return 1;
    for (int64_t k = 0; k < tiles; k++) {
        tile.grid = &grid;
        tile.parameters = parameters;
        if (jpeg2000_decode_tile(bytes, &tile, k, wanted, &tables, memory)) return 1;
        jpeg2000_paint(&tile, wanted, deep, file.space, rgb);
    }
    return 0;
}
