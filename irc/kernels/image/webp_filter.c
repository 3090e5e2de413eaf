/* WebP, lossy: the loop filters (RFC 6386, section 15) and the conversion to RGB.
 *
 * The conversion is that of libwebp: chroma is interpolated between its samples with the weights 9, 3, 3, 1 and the
 * matrix of BT.601 is applied in fixed-point numbers. */

/* The planes of the image; each pointer is to its first sample, inside its border. */
typedef struct {
    uint8_t *y, *u, *v;
    int64_t y_stride, uv_stride;
    int64_t columns, rows; /* in macroblocks */
} webp_planes;

/* Strength of the filter of a macroblock: nothing is filtered where the limit is 0. */
typedef struct {
    int limit, interior, high_variance;
} webp_strength;

/* Return the distance of two samples. */
static inline int webp_distance(int a, int b) {
    return a < b ? b - a : a - b;
}

/* Clamp to a signed byte. */
static inline int webp_clamp_signed(int value) {
    return value < -128 ? -128 : value > 127 ? 127 : value;
}

/* Move the two samples at the edge. `a` is the adjustment, eight times as large. */
static inline void webp_move_inner(uint8_t *p, int64_t step, int a) {
    const int up = webp_clamp_signed(a + 4) >> 3, down = webp_clamp_signed(a + 3) >> 3;
    p[0] = webp_clamp(p[0] - up);
    p[-step] = webp_clamp(p[-step] + down);
}

/* Filter across an edge with the simple filter: `p` is the first sample behind the edge. */
static void webp_filter_simple(uint8_t *p, int64_t step, int64_t along, int limit) {
    for (int i = 0; i < 16; i++, p += along) {
        const int p1 = p[-2 * step], p0 = p[-step], q0 = p[0], q1 = p[step];
        if (4 * webp_distance(p0, q0) + webp_distance(p1, q1) > 2 * limit + 1) continue;
        webp_move_inner(p, step, webp_clamp_signed(webp_clamp_signed(p1 - q1) + 3 * (q0 - p0)));
    }
}

/* Decide whether the normal filter changes samples here: the differences must be those of a smooth area. */
static inline int webp_is_smooth(const uint8_t *p, int64_t step, int limit, int interior) {
    const int p3 = p[-4 * step], p2 = p[-3 * step], p1 = p[-2 * step], p0 = p[-step];
    const int q0 = p[0], q1 = p[step], q2 = p[2 * step], q3 = p[3 * step];
    return 4 * webp_distance(p0, q0) + webp_distance(p1, q1) <= 2 * limit + 1 && webp_distance(p3, p2) <= interior &&
           webp_distance(p2, p1) <= interior && webp_distance(p1, p0) <= interior &&
           webp_distance(q3, q2) <= interior && webp_distance(q2, q1) <= interior && webp_distance(q1, q0) <= interior;
}

/* Filter across the edge of a macroblock with the normal filter: three samples change on either side. */
static void webp_filter_outer(uint8_t *p, int64_t step, int64_t along, int count, const webp_strength *strength) {
    for (int i = 0; i < count; i++, p += along) {
        if (!webp_is_smooth(p, step, strength->limit + 4, strength->interior)) continue;
        const int p1 = p[-2 * step], p0 = p[-step], q0 = p[0], q1 = p[step];
        const int a = webp_clamp_signed(webp_clamp_signed(p1 - q1) + 3 * (q0 - p0));
        if (webp_distance(p1, p0) > strength->high_variance || webp_distance(q1, q0) > strength->high_variance) {
            webp_move_inner(p, step, a);
            continue;
        }
        for (int k = 0; k < 3; k++) {
            const int move = ((3 - k) * 9 * a + 63) >> 7;
            p[k * step] = webp_clamp(p[k * step] - move);
            p[-(k + 1) * step] = webp_clamp(p[-(k + 1) * step] + move);
        }
    }
}

/* Filter across an edge inside a macroblock with the normal filter: two samples change on either side. */
static void webp_filter_inner(uint8_t *p, int64_t step, int64_t along, int count, const webp_strength *strength) {
    for (int i = 0; i < count; i++, p += along) {
        if (!webp_is_smooth(p, step, strength->limit, strength->interior)) continue;
        const int p1 = p[-2 * step], p0 = p[-step], q0 = p[0], q1 = p[step];
        if (webp_distance(p1, p0) > strength->high_variance || webp_distance(q1, q0) > strength->high_variance) {
            webp_move_inner(p, step, webp_clamp_signed(webp_clamp_signed(p1 - q1) + 3 * (q0 - p0)));
            continue;
        }
        const int a = webp_clamp_signed(3 * (q0 - p0));
        const int move = ((webp_clamp_signed(a + 4) >> 3) + 1) >> 1;
        webp_move_inner(p, step, a);
        p[step] = webp_clamp(q1 - move);
        p[-2 * step] = webp_clamp(p1 + move);
    }
}

/* Filter the edges of one direction of a macroblock in the three planes. `first` says that the macroblock has a
 * neighbour across its own edge, `inside` that the edges of its blocks are filtered too. */
static void webp_filter_direction(uint8_t *const at[3], const int64_t step[3], const int64_t along[3], int simple,
                                  const webp_strength *strength, int first, int inside) {
    if (simple) {
        if (first) webp_filter_simple(at[0], step[0], along[0], strength->limit + 4);
        for (int k = 4; inside && k < 16; k += 4) {
            webp_filter_simple(at[0] + k * step[0], step[0], along[0], strength->limit);
        }
        return;
    }
    for (int plane = 0; plane < 3; plane++) {
        const int size = plane == 0 ? 16 : 8;
        if (first) webp_filter_outer(at[plane], step[plane], along[plane], size, strength);
        for (int k = 4; inside && k < size; k += 4) {
            webp_filter_inner(at[plane] + k * step[plane], step[plane], along[plane], size, strength);
        }
    }
}

/* Filter the whole image. `info` has a byte for each macroblock: the index of its strength and, in bit 3, whether the
 * edges of its blocks are filtered. */
static void webp_filter_image(const webp_planes *planes, const uint8_t *info, const webp_strength strengths[8],
                              int simple) {
    const int64_t across[3] = {1, 1, 1}, down[3] = {planes->y_stride, planes->uv_stride, planes->uv_stride};
    for (int64_t row = 0; row < planes->rows; row++) {
        for (int64_t column = 0; column < planes->columns; column++) {
            const uint8_t byte = info[row * planes->columns + column];
            const webp_strength *strength = strengths + (byte & 7);
            if (strength->limit == 0) continue;
            const int64_t chroma = 8 * (row * planes->uv_stride + column);
            uint8_t *const at[3] = {planes->y + 16 * (row * planes->y_stride + column), planes->u + chroma,
                                    planes->v + chroma};
            webp_filter_direction(at, across, down, simple, strength, column > 0, byte >> 3);
            webp_filter_direction(at, down, across, simple, strength, row > 0, byte >> 3);
        }
    }
}

/* Clamp a component with six fractional bits to a byte. */
static inline uint8_t webp_component(int value) {
    return value < 0 ? 0 : webp_clamp(value >> 6);
}

/* Interpolate a sample of chroma between two rows: `near` and `far` are the columns of its neighbours. */
static inline int webp_chroma(const uint8_t *near_row, const uint8_t *far_row, int64_t near, int64_t far) {
    return (9 * near_row[near] + 3 * near_row[far] + 3 * far_row[near] + far_row[far] + 8) >> 4;
}

/* Return the second nearest of `count` samples of chroma to the luma sample `i`; the last is repeated at the border. */
static inline int64_t webp_far(int64_t i, int64_t count) {
    const int64_t far = (i & 1) ? (i >> 1) + 1 : (i >> 1) - 1;
    return far < 0 ? 0 : far >= count ? count - 1 : far;
}

/* Convert the planes to RGB. `pitch` counts the bytes from row to row. */
static void webp_to_rgb(const webp_planes *planes, uint8_t *rgb, int64_t pitch, int64_t height, int64_t width) {
    for (int64_t row = 0; row < height; row++) {
        const int64_t near_at = (row >> 1) * planes->uv_stride;
        const int64_t far_at = webp_far(row, (height + 1) >> 1) * planes->uv_stride;
        const uint8_t *luma = planes->y + row * planes->y_stride;
        uint8_t *out = rgb + row * pitch;
        for (int64_t x = 0; x < width; x++, out += 3) {
            const int64_t near = x >> 1, far = webp_far(x, (width + 1) >> 1);
            const int u = webp_chroma(planes->u + near_at, planes->u + far_at, near, far);
            const int v = webp_chroma(planes->v + near_at, planes->v + far_at, near, far);
            const int y = (luma[x] * 19077) >> 8;
            out[0] = webp_component(y + ((v * 26149) >> 8) - 14234);
            out[1] = webp_component(y - ((u * 6419) >> 8) - ((v * 13320) >> 8) + 8708);
            out[2] = webp_component(y + ((u * 33050) >> 8) - 17685);
        }
    }
}
