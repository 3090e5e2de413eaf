/* JPEG (ITU T.81), part 2 of 3: from coefficients to samples, and from samples to pixels. Sums are rounded, and samples
 * interpolated, exactly as libjpeg-turbo does by default, and CMYK becomes RGB exactly as in Pillow. */

static inline int16_t jpeg_clamp16(int32_t x) {
    return (int16_t)(x < -32768 ? -32768 : x > 32767 ? 32767 : x);
}
static inline uint8_t jpeg_clamp8(int32_t x) {
    return (uint8_t)(x < 0 ? 0 : x > 255 ? 255 : x);
}

/* Transform each of eight columns: the inverse DCT of Loeffler, Ligtenberg and Moschytz, 12 products, here regrouped,
 * by constants of 13 bits; of the sums the lowest `shift` bits are rounded away. Only in damaged files do numbers leave
 * 16 bits; then they wrap as in 16-bit vector units, and sums wrap in 32 bits. */
static void jpeg_columns(const int16_t *restrict x, int16_t *restrict y, int shift) {
    const uint32_t half = 1u << (shift - 1);
    for (int c = 0; c < 8; c++) {
        const int32_t x1 = x[c + 8], x2 = x[c + 16], x3 = x[c + 24], x5 = x[c + 40], x6 = x[c + 48], x7 = x[c + 56];
        const uint32_t sum = (uint32_t)(int16_t)(x[c] + x[c + 32]) << 13;
        const uint32_t difference = (uint32_t)(int16_t)(x[c] - x[c + 32]) << 13;
        const uint32_t even2 = (uint32_t)(x2 * 4433 - x6 * 10704), even3 = (uint32_t)(x2 * 10703 + x6 * 4433);
        const uint32_t a0 = sum + even3 + half, a3 = sum - even3 + half;
        const uint32_t a1 = difference + even2 + half, a2 = difference - even2 + half;
        const int32_t z3 = (int16_t)(x3 + x7), z4 = (int16_t)(x1 + x5);
        const uint32_t w3 = (uint32_t)(z4 * 9633 - z3 * 6436), w4 = (uint32_t)(z3 * 9633 + z4 * 6437);
        const uint32_t b0 = (uint32_t)(x1 * 4926 - x7 * 7373) + w4, b1 = (uint32_t)(x3 * 4177 - x5 * 20995) + w3;
        const uint32_t b2 = (uint32_t)(-x5 * 4176 - x3 * 20995) + w4, b3 = (uint32_t)(-x7 * 4927 - x1 * 7373) + w3;
        y[c] = jpeg_clamp16((int32_t)(a0 + b0) >> shift);
        y[c + 8] = jpeg_clamp16((int32_t)(a1 + b1) >> shift);
        y[c + 16] = jpeg_clamp16((int32_t)(a2 + b2) >> shift);
        y[c + 24] = jpeg_clamp16((int32_t)(a3 + b3) >> shift);
        y[c + 32] = jpeg_clamp16((int32_t)(a3 - b3) >> shift);
        y[c + 40] = jpeg_clamp16((int32_t)(a2 - b2) >> shift);
        y[c + 48] = jpeg_clamp16((int32_t)(a1 - b1) >> shift);
        y[c + 56] = jpeg_clamp16((int32_t)(a0 - b0) >> shift);
    }
}

static void jpeg_transpose(const int16_t *restrict x, int16_t *restrict y) {
    for (int i = 0; i < 8; i++)
        for (int j = 0; j < 8; j++) y[i * 8 + j] = x[j * 8 + i];
}

/* Compute 8 x 8 samples of one block. */
static void jpeg_transform(const int16_t *block, const uint16_t *steps, uint8_t *samples, int64_t stride) {
    int16_t a[64], b[64];
    int ac = 0;
    for (int k = 0; k < 64; k++) a[k] = (int16_t)((uint32_t)block[k] * steps[k]);
    for (int k = 8; k < 64; k++) ac |= block[k];
    if (ac) {
        jpeg_columns(a, b, 11);
        jpeg_transpose(b, a);
    } else {
        for (int k = 0; k < 64; k++) b[k] = (int16_t)((uint32_t)a[k / 8] * 4);
        memcpy(a, b, sizeof a);
    }
    jpeg_columns(a, b, 18);
    for (int i = 0; i < 8; i++)
        for (int j = 0; j < 8; j++) samples[i * stride + j] = jpeg_clamp8(b[j * 8 + i] + 128);
}

/* Put the samples of a component where its coefficients are: a row of blocks goes through `rows`, which has room for
 * its samples, and is never longer than the coefficients up to its end, which are not needed any more. */
static void jpeg_make_samples(jpeg_component *c, uint8_t *rows) {
    const int64_t stride = c->stride * 8;
    uint8_t *samples = (uint8_t *)c->coefficients;
    for (int64_t i = 0; i < c->high; i++) {
        for (int64_t j = 0; j < c->wide; j++)
            jpeg_transform(c->coefficients + (i * c->stride + j) * 64, c->steps, rows + j * 8, stride);
        memcpy(samples + i * 8 * stride, rows, (size_t)(8 * stride));
    }
    c->samples = samples;
}

/* Double a row of n numbers: each result is 3/4 of the nearer and 1/4 of the farther one. What is summed is `unit`
 * times a sample; `left` and `right` round. */
static void jpeg_double(const int16_t *x, uint8_t *y, int64_t n, int unit, int left, int right) {
    for (int64_t j = 0; j < n; j++) {
        const int before = x[j ? j - 1 : 0], after = x[j + 1 < n ? j + 1 : j];
        y[2 * j] = (uint8_t)((3 * x[j] + before + left) / unit);
        y[2 * j + 1] = (uint8_t)((3 * x[j] + after + right) / unit);
    }
}

/* Give row y of a component in the resolution of the image: its samples as they are, or samples that are written to
 * `row`, with room for 3 more than the width. `sums` has room for the samples of one row. */
static const uint8_t *jpeg_row(const jpeg_file *f, const jpeg_component *c, int64_t y, uint8_t *row, int16_t *sums) {
    const int64_t across = f->across / c->across, down = f->down / c->down, stride = c->stride * 8, i = y / down;
    const int64_t beside = y % 2 ? (i + 1 < c->height ? i + 1 : i) : (i ? i - 1 : 0);
    const uint8_t *x = c->samples + i * stride, *other = c->samples + beside * stride;
    if (across == 1 && down == 1) return x;
    if (across == 1 && down == 2) {
        for (int64_t j = 0; j < c->width; j++) row[j] = (uint8_t)((3 * x[j] + other[j] + 1 + y % 2) / 4);
    } else if (across == 2 && down == 1 && c->width > 2) {
        for (int64_t j = 0; j < c->width; j++) sums[j] = x[j];
        jpeg_double(sums, row, c->width, 4, 1, 2);
    } else if (across == 2 && down == 2 && c->width > 2) {
        for (int64_t j = 0; j < c->width; j++) sums[j] = (int16_t)(3 * x[j] + other[j]);
        jpeg_double(sums, row, c->width, 16, 8, 7);
    } else {
        for (int64_t j = 0; j < c->width; j++)
            for (int64_t k = 0; k < across; k++) row[j * across + k] = x[j];
    }
    return row;
}

/* Turn Y, Cb and Cr into R, G and B, by constants of 16 bits. What is shifted is not negative: it has 256 added, which
 * is subtracted behind. */
static void jpeg_from_ycc(int y, int cb, int cr, uint8_t *rgb) {
    const int rounding = (256 << 16) + 32768;
    cb -= 128, cr -= 128;
    rgb[0] = jpeg_clamp8(y + ((91881 * cr + rounding) >> 16) - 256);
    rgb[1] = jpeg_clamp8(y + ((rounding - 22554 * cb - 46802 * cr) >> 16) - 256);
    rgb[2] = jpeg_clamp8(y + ((116130 * cb + rounding) >> 16) - 256);
}

/* Divide a product of two bytes by 255. */
static inline int jpeg_share(int a, int b) {
    const int product = a * b + 128;
    return (product + (product >> 8)) >> 8;
}

/* Write a row of pixels. CMYK is taken to be stored inverted, as Adobe stores it; in YCCK, what YCbCr stands for is the
 * opposite of that. */
static void jpeg_pixels(const uint8_t *const *rows, int components, int ycc, int64_t width, uint8_t *rgb) {
    for (int64_t j = 0; j < width; j++, rgb += 3) {
        if (components == 1) {
            rgb[0] = rgb[1] = rgb[2] = rows[0][j];
            continue;
        }
        if (ycc) jpeg_from_ycc(rows[0][j], rows[1][j], rows[2][j], rgb);
        else rgb[0] = rows[0][j], rgb[1] = rows[1][j], rgb[2] = rows[2][j];
        if (components == 4) {
            const int white = rows[3][j];
            for (int k = 0; k < 3; k++) rgb[k] = jpeg_clamp8(white - jpeg_share(ycc ? rgb[k] : 255 - rgb[k], white));
        }
    }
}
