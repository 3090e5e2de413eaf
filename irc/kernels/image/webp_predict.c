/* WebP, lossy: intra prediction (RFC 6386, section 12) and inverse transforms (section 14).
 *
 * Blocks are predicted where they lie in the plane of the whole image. A plane has a row of 127 above it and a column
 * of 129 to its left, so that blocks at the border need no case of their own (except for the mean, which leaves out
 * what is outside). */

/* Clamp a value to 0..255. */
static inline uint8_t webp_clamp(int value) {
    return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

/* Fill a square block with one value. */
static void webp_fill_block(uint8_t *out, int64_t stride, int size, int value) {
    for (int r = 0; r < size; r++) memset(out + r * stride, value, (size_t)size);
}

/* Predict a square block by the gradient of the row above and the column to the left. */
static void webp_predict_gradient(uint8_t *out, int64_t stride, int size) {
    const uint8_t *above = out - stride;
    for (int r = 0; r < size; r++) {
        const int base = out[r * stride - 1] - above[-1];
        for (int c = 0; c < size; c++) out[r * stride + c] = webp_clamp(base + above[c]);
    }
}

/* Predict a square block by the mean of its neighbours inside the image. `shift` is log2 of `size`. */
static void webp_predict_mean(uint8_t *out, int64_t stride, int shift, int has_above, int has_left) {
    const int size = 1 << shift;
    int sum = 0;
    for (int i = 0; i < size; i++) {
        sum += has_above ? out[i - stride] : 0;
        sum += has_left ? out[i * stride - 1] : 0;
    }
    const int sides = has_above + has_left;
    const int value = sides == 0 ? 128 : sides == 1 ? (sum + size / 2) >> shift : (sum + size) >> (shift + 1);
    webp_fill_block(out, stride, size, value);
}

/* Predict a whole block of luma (16x16, shift 4) or chroma (8x8, shift 3). */
static void webp_predict_whole(uint8_t *out, int64_t stride, int shift, int mode, int has_above, int has_left) {
    const int size = 1 << shift;
    if (mode == WEBP_DC) {
        webp_predict_mean(out, stride, shift, has_above, has_left);
    } else if (mode == WEBP_TM) {
        webp_predict_gradient(out, stride, size);
    } else if (mode == WEBP_VE) {
        for (int r = 0; r < size; r++) memcpy(out + r * stride, out - stride, (size_t)size);
    } else {
        for (int r = 0; r < size; r++) memset(out + r * stride, out[r * stride - 1], (size_t)size);
    }
}

/* Average two neighbouring samples. */
static inline uint8_t webp_avg2(const uint8_t *p) {
    return (uint8_t)((p[0] + p[1] + 1) >> 1);
}

/* Average three neighbouring samples around p with the weights 1, 2, 1. */
static inline uint8_t webp_avg3(const uint8_t *p) {
    return (uint8_t)((p[-1] + 2 * p[0] + p[1] + 2) >> 2);
}

/* Predict the steep diagonals of a 4x4 block: to the right (VR) from the edge, to the left (VL) from the row above. */
static void webp_predict_steep(uint8_t out[4][4], const uint8_t *edge, int mode) {
    const uint8_t *above = edge + 5;
    for (int c = 0; c < 4; c++) {
        if (mode == WEBP_VR) {
            out[0][c] = webp_avg2(edge + 4 + c);
            out[1][c] = webp_avg3(edge + 4 + c);
            out[2][c] = c == 0 ? webp_avg3(edge + 3) : out[0][c - 1];
            out[3][c] = c == 0 ? webp_avg3(edge + 2) : out[1][c - 1];
        } else {
            out[0][c] = webp_avg2(above + c);
            out[1][c] = webp_avg3(above + 1 + c);
            out[2][c] = c == 3 ? webp_avg3(above + 5) : webp_avg2(above + 1 + c);
            out[3][c] = c == 3 ? webp_avg3(above + 6) : webp_avg3(above + 2 + c);
        }
    }
}

/* Predict the flat diagonals of a 4x4 block: downwards (HD) and upwards (HU), both from the column to the left. */
static void webp_predict_flat(uint8_t out[4][4], const uint8_t *edge, int mode) {
    if (mode == WEBP_HD) {
        for (int r = 0; r < 4; r++) {
            out[r][0] = webp_avg2(edge + 3 - r);
            out[r][1] = webp_avg3(edge + 4 - r);
            out[r][2] = r == 0 ? webp_avg3(edge + 5) : out[r - 1][0];
            out[r][3] = r == 0 ? webp_avg3(edge + 6) : out[r - 1][1];
        }
        return;
    }
    const uint8_t last = edge[0];
    const uint8_t line[10] = {
        webp_avg2(edge + 2), webp_avg3(edge + 2), webp_avg2(edge + 1), webp_avg3(edge + 1), webp_avg2(edge),
        (uint8_t)((edge[1] + 3 * last + 2) >> 2), last, last, last, last,
    };
    for (int r = 0; r < 4; r++) memcpy(out[r], line + 2 * r, 4);
}

/* Predict a 4x4 block from its edge: the column to the left from bottom to top, the corner, eight samples above. */
static void webp_predict_edge(uint8_t out[4][4], const uint8_t edge[13], int mode) {
    const uint8_t *above = edge + 5;
    if (mode == WEBP_VR || mode == WEBP_VL) {
        webp_predict_steep(out, edge, mode);
        return;
    }
    if (mode == WEBP_HD || mode == WEBP_HU) {
        webp_predict_flat(out, edge, mode);
        return;
    }
    int mean = 4;
    for (int i = 0; i < 4; i++) mean += edge[i] + above[i];
    for (int r = 0; r < 4; r++) {
        const uint8_t *left = edge + 3 - r;
        for (int c = 0; c < 4; c++) {
            uint8_t value;
            if (mode == WEBP_DC) value = (uint8_t)(mean >> 3);
            else if (mode == WEBP_TM) value = webp_clamp(*left + above[c] - edge[4]);
            else if (mode == WEBP_VE) value = webp_avg3(above + c);
            else if (mode == WEBP_HE) value = (uint8_t)((left[1] + 2 * left[0] + left[r == 3 ? 0 : -1] + 2) >> 2);
            else if (mode == WEBP_RD) value = webp_avg3(edge + 4 - r + c);
            else if (r + c == 6) value = (uint8_t)((above[6] + 3 * above[7] + 2) >> 2);
            else value = webp_avg3(above + r + c + 1);
            out[r][c] = value;
        }
    }
}

/* Predict a 4x4 block of luma. `right` are the four samples above and to the right. */
static void webp_predict_block(uint8_t *out, int64_t stride, const uint8_t *right, int mode) {
    uint8_t edge[13], block[4][4];
    for (int r = 0; r < 4; r++) edge[3 - r] = out[r * stride - 1];
    memcpy(edge + 4, out - stride - 1, 5);
    memcpy(edge + 9, right, 4);
    webp_predict_edge(block, edge, mode);
    for (int r = 0; r < 4; r++) memcpy(out + r * stride, block[r], 4);
}

/* Multiply by sqrt(2) cos(pi/8). */
static inline int32_t webp_by_cos(int32_t x) {
    return x + (int32_t)(((int64_t)x * 20091) >> 16);
}

/* Multiply by sqrt(2) sin(pi/8). */
static inline int32_t webp_by_sin(int32_t x) {
    return (int32_t)(((int64_t)x * 35468) >> 16);
}

/* Invert the cosine transform of a 4x4 block and add it to the prediction. */
static void webp_add_residue(const int16_t *in, uint8_t *out, int64_t stride) {
    int32_t t[16];
    for (int i = 0; i < 4; i++) {
        const int32_t a = in[i] + in[8 + i], b = in[i] - in[8 + i];
        const int32_t c = webp_by_sin(in[4 + i]) - webp_by_cos(in[12 + i]);
        const int32_t d = webp_by_cos(in[4 + i]) + webp_by_sin(in[12 + i]);
        t[i] = a + d;
        t[4 + i] = b + c;
        t[8 + i] = b - c;
        t[12 + i] = a - d;
    }
    for (int r = 0; r < 4; r++, out += stride) {
        const int32_t *row = t + 4 * r;
        const int32_t a = row[0] + row[2] + 4, b = row[0] - row[2] + 4;
        const int32_t c = webp_by_sin(row[1]) - webp_by_cos(row[3]);
        const int32_t d = webp_by_cos(row[1]) + webp_by_sin(row[3]);
        out[0] = webp_clamp(out[0] + ((a + d) >> 3));
        out[1] = webp_clamp(out[1] + ((b + c) >> 3));
        out[2] = webp_clamp(out[2] + ((b - c) >> 3));
        out[3] = webp_clamp(out[3] + ((a - d) >> 3));
    }
}

/* Invert the Walsh-Hadamard transform, of which the results are the first coefficients of 16 blocks. */
static void webp_spread_means(const int16_t *in, int16_t *blocks) {
    int32_t t[16];
    for (int i = 0; i < 4; i++) {
        const int32_t a = in[i] + in[12 + i], b = in[4 + i] + in[8 + i];
        const int32_t c = in[4 + i] - in[8 + i], d = in[i] - in[12 + i];
        t[i] = a + b;
        t[4 + i] = c + d;
        t[8 + i] = a - b;
        t[12 + i] = d - c;
    }
    for (int r = 0; r < 4; r++, blocks += 64) {
        const int32_t *row = t + 4 * r;
        const int32_t a = row[0] + row[3] + 3, b = row[1] + row[2];
        const int32_t c = row[1] - row[2], d = row[0] - row[3] + 3;
        blocks[0] = (int16_t)((a + b) >> 3);
        blocks[16] = (int16_t)((c + d) >> 3);
        blocks[32] = (int16_t)((a - b) >> 3);
        blocks[48] = (int16_t)((d - c) >> 3);
    }
}
