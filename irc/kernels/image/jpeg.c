/* JPEG (ITU T.81), part 3 of 3: markers and scans.
 *
 * Read: baseline, extended sequential and progressive files of 8 bits with Huffman codes; 1, 3 or 4 components (grey;
 * YCbCr or RGB; CMYK or YCCK) whose sampling factors divide the largest. Not read: arithmetic coding, 12 bits, lossless
 * and hierarchical files, a number of lines that comes later (DNL), sizes beyond 65500, and progressive files that end
 * before their low frequencies are known in full, whose blocks other decoders smooth by rules of their own. */

/* The tables of T.81, annex K.3, as the body of a segment: what sequential files (frames of Motion JPEG) use that bring
 * none. */
static const uint8_t jpeg_usual_codes[416] = {
    0, 0, 1, 5, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 16, 0, 2, 1, 3, 3, 2, 4, 3,
    5, 5, 4, 4, 0, 0, 1, 125, 1, 2, 3, 0, 4, 17, 5, 18, 33, 49, 65, 6, 19, 81, 97, 7, 34, 113, 20, 50, 129, 145, 161, 8,
    35, 66, 177, 193, 21, 82, 209, 240, 36, 51, 98, 114, 130, 9, 10, 22, 23, 24, 25, 26, 37, 38, 39, 40, 41, 42, 52, 53,
    54, 55, 56, 57, 58, 67, 68, 69, 70, 71, 72, 73, 74, 83, 84, 85, 86, 87, 88, 89, 90, 99, 100, 101, 102, 103, 104,
    105, 106, 115, 116, 117, 118, 119, 120, 121, 122, 131, 132, 133, 134, 135, 136, 137, 138, 146, 147, 148, 149, 150,
    151, 152, 153, 154, 162, 163, 164, 165, 166, 167, 168, 169, 170, 178, 179, 180, 181, 182, 183, 184, 185, 186, 194,
    195, 196, 197, 198, 199, 200, 201, 202, 210, 211, 212, 213, 214, 215, 216, 217, 218, 225, 226, 227, 228, 229, 230,
    231, 232, 233, 234, 241, 242, 243, 244, 245, 246, 247, 248, 249, 250, 1, 0, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0,
    0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 17, 0, 2, 1, 2, 4, 4, 3, 4, 7, 5, 4, 4, 0, 1, 2, 119, 0, 1, 2, 3, 17, 4,
    5, 33, 49, 6, 18, 65, 81, 7, 97, 113, 19, 34, 50, 129, 8, 20, 66, 145, 161, 177, 193, 9, 35, 51, 82, 240, 21, 98,
    114, 209, 10, 22, 36, 52, 225, 37, 241, 23, 24, 25, 26, 38, 39, 40, 41, 42, 53, 54, 55, 56, 57, 58, 67, 68, 69, 70,
    71, 72, 73, 74, 83, 84, 85, 86, 87, 88, 89, 90, 99, 100, 101, 102, 103, 104, 105, 106, 115, 116, 117, 118, 119, 120,
    121, 122, 130, 131, 132, 133, 134, 135, 136, 137, 138, 146, 147, 148, 149, 150, 151, 152, 153, 154, 162, 163, 164,
    165, 166, 167, 168, 169, 170, 178, 179, 180, 181, 182, 183, 184, 185, 186, 194, 195, 196, 197, 198, 199, 200, 201,
    202, 210, 211, 212, 213, 214, 215, 216, 217, 218, 226, 227, 228, 229, 230, 231, 232, 233, 234, 242, 243, 244, 245,
    246, 247, 248, 249, 250,
};

/* Find the next marker and go behind it. Returns its second byte, -1 if there is none. */
static int jpeg_marker(jpeg_bits *b) {
    for (;;) {
        while (b->at < b->count && b->bytes[b->at] != 0xFF) b->at++;
        while (b->at < b->count && b->bytes[b->at] == 0xFF) b->at++;
        if (b->at >= b->count) return -1;
        const int marker = b->bytes[b->at++];
        if (marker) return marker;
    }
}

static int jpeg_pair(const uint8_t *bytes) {
    return bytes[0] << 8 | bytes[1];
}

/* Go behind the segment that begins here. Returns the size of its body, -1 if it is cut off. */
static int jpeg_segment(jpeg_bits *b, const uint8_t **body) {
    if (b->count - b->at < 2) return -1;
    const int size = jpeg_pair(b->bytes + b->at);
    if (size < 2 || b->count - b->at < size) return -1;
    *body = b->bytes + b->at + 2;
    b->at += size;
    return size - 2;
}

static int jpeg_read_quantizers(jpeg_file *f, const uint8_t *body, int size) {
    while (size > 0) {
        const int wide = body[0] >> 4, index = body[0] & 15, length = 1 + 64 * (1 + wide);
        if (wide > 1 || index > 3 || size < length) return 1;
        for (int k = 0; k < 64; k++)
            f->quantizer[index][jpeg_zigzag[k]] = (uint16_t)(wide ? jpeg_pair(body + 1 + 2 * k) : body[1 + k]);
        f->quantizer_there[index] = 1;
        body += length, size -= length;
    }
    return 0;
}

/* Read Huffman tables. With `missing`, only those that are not there yet. */
static int jpeg_read_codes(jpeg_file *f, const uint8_t *body, int size, int missing) {
    while (size > 0) {
        int count = 0;
        if (size < 17) return 1;
        for (int k = 1; k <= 16; k++) count += body[k];
        if (body[0] >> 4 > 1 || (body[0] & 15) > 3 || count > 256 || size < 17 + count) return 1;
        jpeg_codes *codes = &f->codes[body[0] >> 4][body[0] & 15];
        if (!(missing && codes->there) && jpeg_make_codes(codes, body + 1, body + 17, count)) return 1;
        body += 17 + count, size -= 17 + count;
    }
    return 0;
}

/* Give a component its blocks, which begin at `memory`. Returns where the next one's may. */
static int16_t *jpeg_lay_out(const jpeg_file *f, jpeg_component *c, int16_t *memory) {
    c->width = (f->width * c->across + f->across - 1) / f->across;
    c->height = (f->height * c->down + f->down - 1) / f->down;
    c->wide = (c->width + 7) / 8;
    c->high = (c->height + 7) / 8;
    c->stride = (f->width + 8 * f->across - 1) / (8 * f->across) * c->across;
    c->coefficients = memory;
    memset(c->unknown, -1, sizeof c->unknown);
    const int64_t count = (f->height + 8 * f->down - 1) / (8 * f->down) * c->down * c->stride * 64;
    memset(memory, 0, (size_t)count * sizeof *memory);
    return memory + count;
}

/* Read the size in the head of a frame. Returns 1 if there is none, or one that is not supported. */
static int jpeg_read_size(const uint8_t *body, int size, int64_t *height, int64_t *width) {
    if (size < 6 || body[0] != 8 || size != 6 + 3 * body[5]) return 1;
    *height = jpeg_pair(body + 1);
    *width = jpeg_pair(body + 3);
    return *height < 1 || *width < 1 || *height > JPEG_LARGEST || *width > JPEG_LARGEST;
}

/* Read the head of a frame, and lay its blocks out in `memory` if it has the size that is known. */
static int jpeg_read_frame(jpeg_file *f, int marker, const uint8_t *body, int size, int16_t *memory) {
    int64_t height, width;
    if (f->components || jpeg_read_size(body, size, &height, &width)) return 1;
    if (height != f->height || width != f->width) return 1;
    f->progressive = marker == 0xC2;
    f->components = body[5];
    if (f->components != 1 && f->components != 3 && f->components != 4) return 1;
    for (int k = 0; k < f->components; k++) {
        jpeg_component *c = &f->component[k];
        c->id = body[6 + 3 * k], c->quantizer = body[8 + 3 * k];
        c->across = body[7 + 3 * k] >> 4, c->down = body[7 + 3 * k] & 15;
        if (c->across < 1 || c->across > 4 || c->down < 1 || c->down > 4) return 1;
        if (f->across < c->across) f->across = c->across;
        if (f->down < c->down) f->down = c->down;
    }
    for (int k = 0; k < f->components; k++) {
        jpeg_component *c = &f->component[k];
        if (f->across % c->across || f->down % c->down) return 1;
        memory = jpeg_lay_out(f, c, memory);
    }
    return 0;
}

/* Read what a segment says that stands before the first scan: JFIF and Adobe name colours. */
static int jpeg_read_segment(jpeg_file *f, int marker, const uint8_t *body, int size, int16_t *memory) {
    switch (marker) {
    case 0xC0: case 0xC1: case 0xC2: return jpeg_read_frame(f, marker, body, size, memory);
    case 0xC4: return jpeg_read_codes(f, body, size, 0);
    case 0xDB: return jpeg_read_quantizers(f, body, size);
    case 0xDD:
        if (size != 2) return 1;
        f->interval = jpeg_pair(body);
        return 0;
    case 0xE0:
        if (size >= 14 && !memcmp(body, "JFIF", 5)) f->jfif = 1;
        return 0;
    case 0xEE:
        if (size >= 12 && !memcmp(body, "Adobe", 5)) f->adobe = body[11];
        return 0;
    case 0xFE: return 0;
    default: return marker < 0xE0 || marker > 0xEF;
    }
}

/* Find what the first scan may rely on: whether colours are YCbCr (YCCK), and tables for files that bring none. */
static int jpeg_begin(jpeg_file *f) {
    const jpeg_component *c = f->component;
    const int rgb = c[0].id == 'R' && c[1].id == 'G' && c[2].id == 'B';
    if (f->components == 3) f->ycc = f->jfif || (f->adobe >= 0 ? f->adobe > 0 : !rgb);
    if (f->components == 4) f->ycc = f->adobe > 0;
    return !f->progressive && jpeg_read_codes(f, jpeg_usual_codes, sizeof jpeg_usual_codes, 1);
}

/* Add a component to those of the scan: see that the scan goes on where others ended, and that its tables are there. */
static int jpeg_add(jpeg_file *f, jpeg_component *c, int dc, int ac) {
    for (int k = f->first; k <= f->last; k++) {
        if (c->unknown[k] != (f->high ? f->high : -1)) return 1;
        c->unknown[k] = (int8_t)f->low;
    }
    if (!c->quantized) { /* tables that come after the first scan are for others */
        if (c->quantizer > 3 || !f->quantizer_there[c->quantizer]) return 1;
        memcpy(c->steps, f->quantizer[c->quantizer], sizeof c->steps);
        c->quantized = 1;
    }
    if (!f->first && !f->high) {
        if (dc > 3 || !f->codes[0][dc].there || f->codes[0][dc].largest > 15) return 1;
        c->dc = &f->codes[0][dc];
    }
    if (f->last) {
        if (ac > 3 || !f->codes[1][ac].there) return 1;
        c->ac = &f->codes[1][ac];
    }
    f->scan[f->scanned++] = c;
    return 0;
}

/* Read the head of a scan. */
static int jpeg_read_scan(jpeg_file *f, const uint8_t *body, int size) {
    const int count = size ? body[0] : 0;
    int blocks = 0;
    if (count < 1 || count > f->components || size != 4 + 2 * count) return 1;
    f->first = 0, f->last = 63, f->high = f->low = f->scanned = 0;
    if (f->progressive) {
        f->first = body[size - 3], f->last = body[size - 2];
        f->high = body[size - 1] >> 4, f->low = body[size - 1] & 15;
        if (f->first ? f->last < f->first || f->last > 63 || count > 1 : f->last) return 1;
        if (f->low > 13 || (f->high && f->low != f->high - 1)) return 1;
    }
    for (int k = 0; k < count; k++) {
        jpeg_component *c = f->component, *end = f->component + f->components;
        for (; c < end; c++) {
            int taken = c->id != body[1 + 2 * k];
            for (int j = 0; j < f->scanned; j++) taken |= f->scan[j] == c;
            if (!taken) break;
        }
        if (c == end || jpeg_add(f, c, body[2 + 2 * k] >> 4, body[2 + 2 * k] & 15)) return 1;
        blocks += c->across * c->down;
    }
    return count > 1 && blocks > 10;
}

/* Forget what goes on from block to block, and what is left of bits. */
static void jpeg_reset(jpeg_file *f) {
    f->empty = 0;
    f->bits.word = 0, f->bits.left = 0;
    for (int k = 0; k < f->scanned; k++) f->scan[k]->predicted = 0;
}

/* Read the blocks of one unit of a scan with several components: of each a rectangle. */
static int jpeg_read_unit(jpeg_file *f, jpeg_reader *read, int64_t i, int64_t j) {
    for (int k = 0; k < f->scanned; k++) {
        jpeg_component *c = f->scan[k];
        int16_t *blocks = c->coefficients + (i * c->down * c->stride + j * c->across) * 64;
        for (int y = 0; y < c->down; y++)
            for (int x = 0; x < c->across; x++)
                if (read(f, c, blocks + (y * c->stride + x) * 64)) return 1;
    }
    return 0;
}

/* Read the blocks of a scan. */
static int jpeg_read_blocks(jpeg_file *f) {
    jpeg_reader *const ac = f->high ? jpeg_refined_ac : jpeg_first_ac;
    jpeg_reader *const dc = f->high ? jpeg_refined_dc : jpeg_first_dc;
    jpeg_reader *const read = !f->progressive ? jpeg_sequential_block : f->first ? ac : dc;
    jpeg_component *c = f->scan[0];
    const int alone = f->scanned == 1;
    const int64_t rows = alone ? c->high : (f->height + 8 * f->down - 1) / (8 * f->down);
    const int64_t columns = alone ? c->wide : (f->width + 8 * f->across - 1) / (8 * f->across);
    int64_t left = f->interval;
    int restarts = 0;
    jpeg_reset(f);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) {
            if (f->interval && !left--) {
                if (jpeg_marker(&f->bits) != 0xD0 + restarts++ % 8) return 1;
                left = f->interval - 1;
                jpeg_reset(f);
            }
            int16_t *block = c->coefficients + (i * c->stride + j) * 64; /* where `c` is alone */
            if (alone ? read(f, c, block) : jpeg_read_unit(f, read, i, j)) return 1;
        }
    return 0;
}

/* Go on to the next marker with a segment, or to an end. */
static int jpeg_next(jpeg_bits *b, const uint8_t **body, int *size) {
    int marker;
    do marker = jpeg_marker(b);
    while (marker == 0x01 || (marker >= 0xD0 && marker <= 0xD7));
    *size = 0;
    if (marker == 0xD8 || marker == 0xD9 || marker < 0) return marker;
    *size = jpeg_segment(b, body);
    return *size < 0 ? -1 : marker;
}

/* Read the whole file. Returns 1 unless all that the image consists of is there. */
static int jpeg_read(jpeg_file *f, int16_t *memory) {
    const uint8_t *body;
    int marker, size, scans = 0;
    while ((marker = jpeg_next(&f->bits, &body, &size)) != 0xD9) {
        if (marker < 0) return 1;
        if (marker != 0xDA) {
            if (jpeg_read_segment(f, marker, body, size, memory)) return 1;
        } else {
            if (!scans++ && jpeg_begin(f)) return 1;
            if (jpeg_read_scan(f, body, size) || jpeg_read_blocks(f)) return 1;
        }
    }
    for (int k = 0; k < f->components; k++) {
        if (f->component[k].unknown[0] < 0) return 1;
        for (int j = 1; j < 10; j++)
            if (f->component[k].unknown[j]) return 1;
    }
    return !f->components;
}

/* Read the size of the image from its header. Returns 1 if these bytes are no JPEG file. */
static int jpeg_size(const uint8_t *bytes, int64_t count, int64_t *height, int64_t *width) {
    jpeg_bits b = {bytes, 2, count, 0, 0};
    const uint8_t *body;
    int size;
    if (count < 3 || bytes[0] != 0xFF || bytes[1] != 0xD8 || bytes[2] != 0xFF) return 1;
    for (;;) {
        const int marker = jpeg_next(&b, &body, &size);
        if (marker >= 0xC0 && marker <= 0xC2) return jpeg_read_size(body, size, height, width);
        if (marker < 0xC4 || marker == 0xD8 || marker == 0xD9 || marker == 0xDA) return 1;
    }
}

/* Count the bytes of scratch memory: 16384 + 8 * (h + 33) * (w + 32). Coefficients of 2 bytes, of 4 components. */
static int64_t jpeg_scratch(int64_t height, int64_t width, int64_t count) {
    (void)count;
    if (height > JPEG_LARGEST) height = JPEG_LARGEST;
    if (width > JPEG_LARGEST) width = JPEG_LARGEST;
    return JPEG_STATE + 8 * (height + 33) * (width + 32);
}

/* Decode to height x width x 3 bytes of RGB. Returns 1 if the file is damaged or not supported. */
static int jpeg_decode(const uint8_t *bytes, int64_t count, uint8_t *rgb, int64_t height, int64_t width,
                       uint8_t *scratch) {
    jpeg_file *f = (jpeg_file *)(void *)scratch;
    uint8_t *rows = scratch + JPEG_STATE; /* room for 8 rows of a component, or for one of each, and for sums */
    int16_t *sums = (int16_t *)(void *)(rows + 4 * (width + 32));
    const uint8_t *row[JPEG_COMPONENTS];
    if (count < 3 || bytes[0] != 0xFF || bytes[1] != 0xD8) return 1;
    if (height < 1 || width < 1 || height > JPEG_LARGEST || width > JPEG_LARGEST) return 1;
    memset(f, 0, sizeof *f);
    f->bits.bytes = bytes, f->bits.at = 2, f->bits.count = count;
    f->height = height, f->width = width, f->adobe = -1;
    if (jpeg_read(f, (int16_t *)(void *)(rows + 8 * (width + 32)))) return 1;
    for (int k = 0; k < f->components; k++) jpeg_make_samples(&f->component[k], rows);
    for (int64_t y = 0; y < height; y++) {
        for (int k = 0; k < f->components; k++)
            row[k] = jpeg_row(f, &f->component[k], y, rows + k * (width + 32), sums);
        jpeg_pixels(row, f->components, f->ycc, width, rgb + y * width * 3);
    }
    return 0;
}
