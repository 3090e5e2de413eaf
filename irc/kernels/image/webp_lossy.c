/* WebP, lossy: key frames of VP8 (RFC 6386).
 *
 * A frame is a first partition (header and prediction modes) and up to eight partitions of coefficients; all are coded
 * by a boolean arithmetic coder. Macroblocks are decoded one after another into planes of the whole image, which are
 * filtered and converted to RGB at the end. Results differ from those of libwebp where its sums exceed 16 bits, which
 * takes coefficients that no encoder writes. */

/* Boolean decoder (section 7). Bytes are fetched only when their bits are needed, so that reading past the end is known
 * exactly. `value` has `bits` bits below the eight that are compared. */
typedef struct {
    const uint8_t *next, *end;
    uint64_t value;
    uint32_t range;
    int bits, overrun;
} webp_bool;

/* What the header says of the quantizers, the segments and the filter. */
typedef struct {
    int segments, segment_map, absolute;
    int quantizers[4], levels[4];
    uint8_t segment_probs[3];
    int simple_filter, level, sharpness, reference_delta, block_delta;
} webp_header;

/* Quantizer steps of a segment: of the first coefficient and of the others. */
typedef struct {
    int luma[2], means[2], chroma[2];
} webp_steps;

/* State of decoding of a frame. Of the 9 flags of blocks with coefficients four are for luma, two for each plane of
 * chroma and one for the means. */
typedef struct {
    webp_bool modes, parts[8];
    int part_count;
    webp_header header;
    webp_steps steps[4];
    uint8_t probs[4][8][3][11];
    int skips;
    uint8_t skip_prob;
    webp_planes planes;
    uint8_t *info;
    uint8_t *above_modes, *above_flags; /* 4 modes and 9 flags for each column */
    uint8_t left_modes[4], left_flags[9];
    int16_t blocks[25 * 16];
} webp_frame;

/* What is known of the macroblock that is being decoded. */
typedef struct {
    int segment, skip, split, mode, chroma_mode;
    uint8_t block_modes[16];
    uint8_t filled[24]; /* per block: 0 no coefficients, 1 the first only, 2 more */
} webp_macroblock;

/* Begin to decode at `bytes`. */
static void webp_bool_begin(webp_bool *d, const uint8_t *bytes, int64_t count) {
    *d = (webp_bool){bytes, bytes + count, 0, 255, -8, 0};
}

/* Fetch further bytes: zeros past the end. */
static void webp_bool_fetch(webp_bool *d) {
    if (d->end - d->next >= 6) {
        for (int k = 0; k < 6; k++) d->value = d->value << 8 | *d->next++;
        d->bits += 48;
        return;
    }
    d->overrun |= d->next == d->end;
    d->value = d->value << 8 | (d->next < d->end ? *d->next++ : 0u);
    d->bits += 8;
}

/* Decode a bit that is 0 with a probability of prob / 256. */
static inline int webp_bit(webp_bool *d, int prob) {
    if (d->bits < 0) webp_bool_fetch(d);
    const uint32_t split = 1 + (((d->range - 1) * (uint32_t)prob) >> 8);
    const uint64_t bound = (uint64_t)split << d->bits;
    const int bit = d->value >= bound;
    if (bit) {
        d->value -= bound;
        d->range -= split;
    } else {
        d->range = split;
    }
    while (d->range < 128) {
        d->range <<= 1;
        d->bits--;
    }
    return bit;
}

/* Decode an unsigned number, its highest bit first. */
static int webp_number(webp_bool *d, int bits) {
    int value = 0;
    while (bits-- > 0) value = 2 * value + webp_bit(d, 128);
    return value;
}

/* Decode an optional signed number: a flag, the magnitude, the sign. */
static int webp_optional(webp_bool *d, int bits) {
    if (!webp_number(d, 1)) return 0;
    const int value = webp_number(d, bits);
    return webp_number(d, 1) ? -value : value;
}

/* Read what the header says of segments (section 9.3). */
static void webp_read_segments(webp_bool *d, webp_header *h) {
    memset(h->segment_probs, 255, 3);
    h->absolute = 1; /* as libwebp has it, if the header has segments but not their values */
    h->segments = webp_number(d, 1);
    if (!h->segments) return;
    h->segment_map = webp_number(d, 1);
    if (webp_number(d, 1)) {
        h->absolute = webp_number(d, 1);
        for (int i = 0; i < 4; i++) h->quantizers[i] = webp_optional(d, 7);
        for (int i = 0; i < 4; i++) h->levels[i] = webp_optional(d, 6);
    }
    for (int i = 0; h->segment_map && i < 3; i++) {
        if (webp_number(d, 1)) h->segment_probs[i] = (uint8_t)webp_number(d, 8);
    }
}

/* Read what the header says of the loop filter (section 9.6): of the deltas only those of key frames matter. Returns
 * whether there are deltas. */
static int webp_read_filter(webp_bool *d, webp_header *h) {
    h->simple_filter = webp_number(d, 1);
    h->level = webp_number(d, 6);
    h->sharpness = webp_number(d, 3);
    const int deltas = webp_number(d, 1);
    if (!deltas || !webp_number(d, 1)) return deltas;
    for (int i = 0; i < 8; i++) {
        const int delta = webp_optional(d, 6);
        if (i == 0) h->reference_delta = delta;
        if (i == 4) h->block_delta = delta;
    }
    return deltas;
}

/* Find the partitions of coefficients (section 9.5). Returns 1 if nothing is left for the last one. */
static int webp_find_parts(webp_frame *f, const uint8_t *bytes, int64_t count) {
    f->part_count = 1 << webp_number(&f->modes, 2);
    const int64_t table = 3 * (f->part_count - 1);
    if (count <= table) return 1;
    int64_t at = table;
    for (int i = 0; i < f->part_count; i++) {
        const uint8_t *entry = bytes + 3 * i;
        int64_t size = count - at;
        if (i < f->part_count - 1) {
            const int64_t said = entry[0] | entry[1] << 8 | entry[2] << 16;
            size = said < size ? said : size;
        }
        webp_bool_begin(&f->parts[i], bytes + at, size);
        at += size;
    }
    return f->parts[f->part_count - 1].next == bytes + count;
}

/* Look up a quantizer step; the index is clamped. */
static int webp_dc_step(int index, int last) {
    return webp_dc_steps[index < 0 ? 0 : index > last ? last : index];
}

/* Look up a quantizer step of the coefficients after the first; the index is clamped. */
static int webp_ac_step(int index) {
    return webp_ac_steps[index < 0 ? 0 : index > 127 ? 127 : index];
}

/* Read the quantizers (section 9.6) and compute the steps of the segments (section 14.1). */
static void webp_read_steps(webp_frame *f) {
    webp_bool *d = &f->modes;
    const webp_header *h = &f->header;
    const int base = webp_number(d, 7);
    int delta[5];
    for (int i = 0; i < 5; i++) delta[i] = webp_optional(d, 4);
    for (int i = 0; i < 4; i++) {
        const int q = !h->segments ? base : h->quantizers[i] + (h->absolute ? 0 : base);
        webp_steps *steps = f->steps + i;
        steps->luma[0] = webp_dc_step(q + delta[0], 127);
        steps->luma[1] = webp_ac_step(q);
        steps->means[0] = 2 * webp_dc_step(q + delta[1], 127);
        steps->means[1] = webp_ac_step(q + delta[2]) * 155 / 100;
        if (steps->means[1] < 8) steps->means[1] = 8;
        steps->chroma[0] = webp_dc_step(q + delta[3], 117);
        steps->chroma[1] = webp_ac_step(q + delta[4]);
    }
}

/* Read the probabilities of tokens (section 13.4) and of macroblocks without coefficients (section 9.11). */
static void webp_read_probs(webp_frame *f) {
    webp_bool *d = &f->modes;
    webp_number(d, 1); /* whether later frames keep the probabilities */
    uint8_t *to = &f->probs[0][0][0][0];
    const uint8_t *sent = &webp_token_update_probs[0][0][0][0], *usual = &webp_default_token_probs[0][0][0][0];
    for (int i = 0; i < 4 * 8 * 3 * 11; i++) to[i] = webp_bit(d, sent[i]) ? (uint8_t)webp_number(d, 8) : usual[i];
    f->skips = webp_number(d, 1);
    f->skip_prob = f->skips ? (uint8_t)webp_number(d, 8) : 0;
}

/* Compute the strength of the filter by segment and by whether luma is predicted in blocks (sections 9.6 and 15.2). */
static void webp_find_strengths(const webp_header *h, int deltas, webp_strength strengths[8]) {
    for (int i = 0; i < 8; i++) {
        int level = !h->segments ? h->level : h->levels[i & 3] + (h->absolute ? 0 : h->level);
        if (deltas) level += h->reference_delta + (i >= 4 ? h->block_delta : 0);
        level = level < 0 ? 0 : level > 63 ? 63 : level;
        int interior = level;
        if (h->sharpness > 0) {
            interior >>= h->sharpness > 4 ? 2 : 1;
            if (interior > 9 - h->sharpness) interior = 9 - h->sharpness;
        }
        if (interior < 1) interior = 1;
        strengths[i].limit = level == 0 || h->level == 0 ? 0 : 2 * level + interior;
        strengths[i].interior = interior;
        strengths[i].high_variance = level >= 40 ? 2 : level >= 15 ? 1 : 0;
    }
}

/* Decode the modes of the sixteen blocks of a macroblock, from those above and to the left (section 11.3). */
static void webp_read_block_modes(webp_frame *f, uint8_t *above, webp_macroblock *m) {
    for (int i = 0; i < 16; i++) {
        const uint8_t *probs = webp_block_mode_probs[above[i & 3]][f->left_modes[i >> 2]];
        int node = 0;
        do {
            node = webp_block_mode_tree[node + webp_bit(&f->modes, probs[node >> 1])];
        } while (node > 0);
        above[i & 3] = f->left_modes[i >> 2] = m->block_modes[i] = (uint8_t)-node;
    }
}

/* Decode the modes of a macroblock (section 11). */
static void webp_read_modes(webp_frame *f, int64_t column, webp_macroblock *m) {
    webp_bool *d = &f->modes;
    const webp_header *h = &f->header;
    uint8_t *above = f->above_modes + 4 * column;
    m->segment = 0;
    if (h->segment_map) {
        const int high = webp_bit(d, h->segment_probs[0]);
        m->segment = 2 * high + webp_bit(d, h->segment_probs[1 + high]);
    }
    m->skip = f->skips && webp_bit(d, f->skip_prob);
    m->split = !webp_bit(d, 145);
    if (m->split) {
        webp_read_block_modes(f, above, m);
    } else {
        m->mode = webp_bit(d, 156) ? (webp_bit(d, 128) ? WEBP_TM : WEBP_HE) : (webp_bit(d, 163) ? WEBP_VE : WEBP_DC);
        memset(above, m->mode, 4);
        memset(f->left_modes, m->mode, 4);
    }
    m->chroma_mode = WEBP_DC;
    if (webp_bit(d, 142)) m->chroma_mode = !webp_bit(d, 114) ? WEBP_VE : webp_bit(d, 183) ? WEBP_TM : WEBP_HE;
}

/* Decode the magnitude of a coefficient above 1 (section 13.2). */
static int webp_read_magnitude(webp_bool *d, const uint8_t *probs) {
    if (!webp_bit(d, probs[3])) {
        if (!webp_bit(d, probs[4])) return 2;
        return 3 + webp_bit(d, probs[5]);
    }
    if (!webp_bit(d, probs[6])) {
        if (!webp_bit(d, probs[7])) return 5 + webp_bit(d, 159);
        const int high = webp_bit(d, 165);
        return 7 + 2 * high + webp_bit(d, 145);
    }
    const int high = webp_bit(d, probs[8]);
    const int category = 2 * high + webp_bit(d, probs[9 + high]);
    int extra = 0;
    for (const uint8_t *p = webp_category_probs[category]; *p; p++) extra = 2 * extra + webp_bit(d, *p);
    return 3 + (8 << category) + extra;
}

/* Decode the coefficients of a block from position `first`. Returns the position after the last one that is sent. */
static int webp_read_block(webp_bool *d, uint8_t probs[8][3][11], int context, int first, const int steps[2],
                           int16_t *out) {
    int n = first;
    const uint8_t *p = probs[webp_bands[n]][context];
    while (n < 16) {
        if (!webp_bit(d, p[0])) return n;
        while (!webp_bit(d, p[1])) {
            if (++n == 16) return 16;
            p = probs[webp_bands[n]][0];
        }
        const int magnitude = webp_bit(d, p[2]) ? webp_read_magnitude(d, p) : 1;
        const int value = magnitude * steps[n > 0];
        out[webp_zigzag[n]] = (int16_t)(webp_bit(d, 128) ? -value : value);
        n++;
        p = probs[webp_bands[n]][magnitude > 1 ? 2 : 1];
    }
    return 16;
}

/* Decode the coefficients of a macroblock (section 13). Returns whether there are any. */
static int webp_read_residue(webp_frame *f, webp_bool *d, int64_t column, webp_macroblock *m) {
    const webp_steps *steps = f->steps + m->segment;
    uint8_t *above = f->above_flags + 9 * column, *left = f->left_flags;
    int16_t *blocks = f->blocks, *means = blocks + 24 * 16;
    int type = 3, first = 0, any = 0;
    memset(blocks, 0, sizeof f->blocks);
    if (!m->split) {
        const int end = webp_read_block(d, f->probs[1], above[8] + left[8], 0, steps->means, means);
        above[8] = left[8] = end > 0;
        webp_spread_means(means, blocks);
        type = 0;
        first = 1;
    }
    for (int i = 0; i < 24; i++) {
        const int chroma = i >= 16;
        uint8_t *up = above + (chroma ? (i & 4 ? 6 : 4) + (i & 1) : i & 3);
        uint8_t *side = left + (chroma ? (i & 4 ? 6 : 4) + (i >> 1 & 1) : i >> 2);
        if (i == 16) {
            type = 2;
            first = 0;
        }
        int16_t *block = blocks + 16 * i;
        const int *step = chroma ? steps->chroma : steps->luma;
        const int end = webp_read_block(d, f->probs[type], *up + *side, first, step, block);
        *up = *side = end > first;
        m->filled[i] = end > 1 ? 2 : block[0] != 0;
        any |= m->filled[i];
    }
    return any;
}

/* Predict luma and add its residue. */
static void webp_rebuild_luma(const webp_frame *f, const webp_macroblock *m, int64_t row, int64_t column) {
    const int64_t stride = f->planes.y_stride;
    uint8_t *out = f->planes.y + 16 * (row * stride + column);
    if (!m->split) webp_predict_whole(out, stride, 4, m->mode, row > 0, column > 0);
    for (int i = 0; i < 16; i++) {
        uint8_t *at = out + 4 * ((i >> 2) * stride + (i & 3));
        if (m->split) {
            /* The blocks at the right have no decoded block above and to the right: they use the macroblock above. */
            const uint8_t *right = (i & 3) == 3 ? out - stride + 16 : at - stride + 4;
            webp_predict_block(at, stride, right, m->block_modes[i]);
        }
        if (m->filled[i]) webp_add_residue(f->blocks + 16 * i, at, stride);
    }
}

/* Predict chroma and add its residue. */
static void webp_rebuild_chroma(const webp_frame *f, const webp_macroblock *m, int64_t row, int64_t column) {
    const int64_t stride = f->planes.uv_stride;
    for (int plane = 0; plane < 2; plane++) {
        uint8_t *out = (plane ? f->planes.v : f->planes.u) + 8 * (row * stride + column);
        webp_predict_whole(out, stride, 3, m->chroma_mode, row > 0, column > 0);
        for (int i = 0; i < 4; i++) {
            const int index = 16 + 4 * plane + i;
            if (!m->filled[index]) continue;
            webp_add_residue(f->blocks + 16 * index, out + 4 * ((i >> 1) * stride + (i & 1)), stride);
        }
    }
}

/* Decode all macroblocks. Returns 1 if a partition ends too early. */
static int webp_decode_macroblocks(webp_frame *f) {
    const webp_planes *planes = &f->planes;
    for (int64_t row = 0; row < planes->rows; row++) {
        webp_bool *part = f->parts + (row & (f->part_count - 1));
        memset(f->left_modes, WEBP_DC, 4);
        memset(f->left_flags, 0, 9);
        for (int64_t column = 0; column < planes->columns; column++) {
            webp_macroblock m = {0};
            webp_read_modes(f, column, &m);
            int any = 0;
            if (m.skip) {
                /* The flag of the means stays as it is where a macroblock has none. */
                memset(f->above_flags + 9 * column, 0, m.split ? 8 : 9);
                memset(f->left_flags, 0, m.split ? 8 : 9);
            } else {
                any = webp_read_residue(f, part, column, &m);
            }
            if (f->modes.overrun || part->overrun) return 1;
            webp_rebuild_luma(f, &m, row, column);
            webp_rebuild_chroma(f, &m, row, column);
            f->info[row * planes->columns + column] =
                (uint8_t)(m.segment | (m.split ? 4 : 0) | (m.split || any ? 8 : 0));
        }
        uint8_t *last = planes->y + (16 * row + 15) * planes->y_stride + 16 * planes->columns;
        memset(last, last[-1], 4);
    }
    return 0;
}

/* Take `size` bytes of scratch memory, in multiples of 64. */
static uint8_t *webp_take(uint8_t **scratch, int64_t size) {
    uint8_t *const taken = *scratch;
    *scratch += (size + 63) / 64 * 64;
    return taken;
}

/* Lay out a plane of `rows` x `columns` samples with its border. Returns the first sample inside the border. */
static uint8_t *webp_lay_plane(uint8_t **scratch, int64_t stride, int64_t rows) {
    uint8_t *const plane = webp_take(scratch, (rows + 1) * stride) + 16;
    memset(plane - 16, 127, (size_t)stride);
    for (int64_t r = 1; r <= rows; r++) plane[r * stride - 1] = 129;
    return plane + stride;
}

/* Lay out the memory of a frame. */
static void webp_lay_frame(webp_frame *f, int64_t height, int64_t width, uint8_t *scratch) {
    webp_planes *planes = &f->planes;
    planes->rows = (height + 15) / 16;
    planes->columns = (width + 15) / 16;
    planes->y_stride = 16 * planes->columns + 32;
    planes->uv_stride = 8 * planes->columns + 16;
    planes->y = webp_lay_plane(&scratch, planes->y_stride, 16 * planes->rows);
    planes->u = webp_lay_plane(&scratch, planes->uv_stride, 8 * planes->rows);
    planes->v = webp_lay_plane(&scratch, planes->uv_stride, 8 * planes->rows);
    f->info = webp_take(&scratch, planes->rows * planes->columns);
    f->above_modes = webp_take(&scratch, 4 * planes->columns);
    f->above_flags = webp_take(&scratch, 9 * planes->columns);
    memset(f->above_modes, WEBP_DC, (size_t)(4 * planes->columns));
    memset(f->above_flags, 0, (size_t)(9 * planes->columns));
}

/* Read how many bytes the first partition has, from the beginning of a frame. */
static int64_t webp_first_part(const uint8_t *bytes) {
    return (bytes[0] | bytes[1] << 8 | bytes[2] << 16) >> 5;
}

/* Read the size of a key frame. Returns 1 if these bytes begin no key frame that is shown. */
static int webp_lossy_size(const uint8_t *bytes, int64_t count, int64_t *height, int64_t *width) {
    if (count < 10 || (bytes[0] & 1) || (bytes[0] >> 1 & 7) > 3 || !(bytes[0] & 16)) return 1;
    if (webp_first_part(bytes) >= count) return 1;
    if (bytes[3] != 0x9d || bytes[4] != 0x01 || bytes[5] != 0x2a) return 1;
    *width = bytes[6] | (bytes[7] & 63) << 8;
    *height = bytes[8] | (bytes[9] & 63) << 8;
    return *width == 0 || *height == 0;
}

/* Decode a key frame of height x width into RGB; `pitch` counts the bytes from row to row. Returns 1 if it is damaged.
 * The size is that of webp_lossy_size. */
static int webp_lossy_decode(const uint8_t *bytes, int64_t count, uint8_t *rgb, int64_t pitch, int64_t height,
                             int64_t width, uint8_t *scratch) {
    webp_frame f;
    webp_strength strengths[8];
    memset(&f, 0, sizeof f);
    const int64_t first = webp_first_part(bytes);
    bytes += 10;
    count -= 10;
    if (first > count) return 1;
    webp_bool_begin(&f.modes, bytes, first);
    webp_number(&f.modes, 2); /* colour space and whether clamping is needed: libwebp ignores both */
    webp_read_segments(&f.modes, &f.header);
    const int deltas = webp_read_filter(&f.modes, &f.header);
    if (f.modes.overrun || webp_find_parts(&f, bytes + first, count - first)) return 1;
    webp_read_steps(&f);
    webp_read_probs(&f);
    webp_find_strengths(&f.header, deltas, strengths);
    webp_lay_frame(&f, height, width, scratch);
    if (webp_decode_macroblocks(&f)) return 1;
    webp_filter_image(&f.planes, f.info, strengths, f.header.simple_filter);
    webp_to_rgb(&f.planes, rgb, pitch, height, width);
    return 0;
}
