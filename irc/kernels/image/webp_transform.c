/* WebP, lossless: the inverse transforms (specification of the lossless bitstream, section 4). */

enum { WEBP_PREDICT, WEBP_COLOR, WEBP_SUBTRACT_GREEN, WEBP_INDEX };

/* A transform of the image: `data` is its smaller image of `columns` columns, or its palette; `width` is that of the
 * pixels that its inverse results in. */
typedef struct {
    int type, bits;
    int64_t width, columns;
    uint32_t *data;
} webp_transform;

/* Add pixels component by component. */
static inline uint32_t webp_add_pixels(uint32_t a, uint32_t b) {
    return (((a & 0xff00ff00) + (b & 0xff00ff00)) & 0xff00ff00) | (((a & 0x00ff00ff) + (b & 0x00ff00ff)) & 0x00ff00ff);
}

/* Average pixels component by component, rounded down. */
static inline uint32_t webp_average(uint32_t a, uint32_t b) {
    return (((a ^ b) & 0xfefefefe) >> 1) + (a & b);
}

/* Return a component of a pixel: that of the bits from `shift`. */
static inline int webp_part(uint32_t pixel, int shift) {
    return (int)(pixel >> shift & 255);
}

/* Choose of the pixels to the left and above that nearer to left + above - corner. */
static uint32_t webp_select(uint32_t left, uint32_t above, uint32_t corner) {
    int to_left = 0, to_above = 0;
    for (int k = 0; k < 32; k += 8) {
        to_left += webp_distance(webp_part(above, k), webp_part(corner, k));
        to_above += webp_distance(webp_part(left, k), webp_part(corner, k));
    }
    return to_left < to_above ? left : above;
}

/* Predict by left + above - corner, clamped in each component. */
static uint32_t webp_gradient(uint32_t left, uint32_t above, uint32_t corner) {
    uint32_t result = 0;
    for (int k = 0; k < 32; k += 8) {
        const int value = webp_part(left, k) + webp_part(above, k) - webp_part(corner, k);
        result |= (uint32_t)webp_clamp(value) << k;
    }
    return result;
}

/* Predict by the average of left and above, and half its distance from the corner; clamped in each component. */
static uint32_t webp_half_gradient(uint32_t left, uint32_t above, uint32_t corner) {
    const uint32_t mean = webp_average(left, above);
    uint32_t result = 0;
    for (int k = 0; k < 32; k += 8) {
        const int value = webp_part(mean, k) + (webp_part(mean, k) - webp_part(corner, k)) / 2;
        result |= (uint32_t)webp_clamp(value) << k;
    }
    return result;
}

/* Predict a pixel from its neighbours. `above` is the pixel above it; the modes 14 and 15 are as 0. */
static inline uint32_t webp_predict_pixel(int mode, uint32_t left, const uint32_t *above) {
    const uint32_t t = above[0], tl = above[-1], tr = above[1];
    switch (mode) {
        case 1: return left;
        case 2: return t;
        case 3: return tr;
        case 4: return tl;
        case 5: return webp_average(webp_average(left, tr), t);
        case 6: return webp_average(left, tl);
        case 7: return webp_average(left, t);
        case 8: return webp_average(tl, t);
        case 9: return webp_average(t, tr);
        case 10: return webp_average(webp_average(left, tl), webp_average(t, tr));
        case 11: return webp_select(left, t, tl);
        case 12: return webp_gradient(left, t, tl);
        case 13: return webp_half_gradient(left, t, tl);
        default: return 0xff000000;
    }
}

/* Invert prediction. The pixel to the right of the last one above is the first one of the row itself. */
static void webp_invert_prediction(const webp_transform *t, uint32_t *pixels, int64_t height) {
    const int64_t width = t->width;
    pixels[0] = webp_add_pixels(pixels[0], 0xff000000);
    for (int64_t x = 1; x < width; x++) pixels[x] = webp_add_pixels(pixels[x], pixels[x - 1]);
    for (int64_t row = 1; row < height; row++) {
        uint32_t *line = pixels + row * width;
        const uint32_t *modes = t->data + (row >> t->bits) * t->columns;
        line[0] = webp_add_pixels(line[0], line[-width]);
        for (int64_t x = 1; x < width; x++) {
            const int mode = (int)(modes[x >> t->bits] >> 8 & 15);
            line[x] = webp_add_pixels(line[x], webp_predict_pixel(mode, line[x - 1], line + x - width));
        }
    }
}

/* Scale a component by a factor of the transform of colours: both signed bytes, of which the factor has five fractional
 * bits. */
static inline int webp_scale(uint32_t factor, int component) {
    return ((int8_t)(uint8_t)factor * (int8_t)(uint8_t)component) >> 5;
}

/* Invert the transform of colours. */
static void webp_invert_color(const webp_transform *t, uint32_t *pixels, int64_t height) {
    for (int64_t row = 0; row < height; row++) {
        const uint32_t *factors = t->data + (row >> t->bits) * t->columns;
        for (int64_t x = 0; x < t->width; x++, pixels++) {
            const uint32_t factor = factors[x >> t->bits];
            const int green = webp_part(*pixels, 8);
            const int red = webp_part(*pixels, 16) + webp_scale(factor, green);
            const int blue = webp_part(*pixels, 0) + webp_scale(factor >> 8, green) + webp_scale(factor >> 16, red);
            *pixels = (*pixels & 0xff00ff00) | ((uint32_t)red & 255) << 16 | ((uint32_t)blue & 255);
        }
    }
}

/* Replace packed indices by colours, in place: from the end, since the image becomes larger. */
static void webp_invert_index(const webp_transform *t, uint32_t *pixels, int64_t height) {
    const int64_t packed = (t->width + (INT64_C(1) << t->bits) - 1) >> t->bits;
    const int size = 8 >> t->bits, mask = (1 << size) - 1, in_pixel = (1 << t->bits) - 1;
    for (int64_t row = height - 1; row >= 0; row--) {
        for (int64_t x = t->width - 1; x >= 0; x--) {
            const int green = webp_part(pixels[row * packed + (x >> t->bits)], 8);
            pixels[row * t->width + x] = t->data[green >> (size * (int)(x & in_pixel)) & mask];
        }
    }
}

/* Invert the transforms, the last one first. */
static void webp_invert_transforms(const webp_transform *transforms, int count, uint32_t *pixels, int64_t height) {
    while (count-- > 0) {
        const webp_transform *t = transforms + count;
        if (t->type == WEBP_PREDICT) {
            webp_invert_prediction(t, pixels, height);
        } else if (t->type == WEBP_COLOR) {
            webp_invert_color(t, pixels, height);
        } else if (t->type == WEBP_INDEX) {
            webp_invert_index(t, pixels, height);
        } else {
            for (int64_t i = 0; i < height * t->width; i++) {
                const uint32_t green = pixels[i] >> 8 & 255;
                pixels[i] = webp_add_pixels(pixels[i], green << 16 | green);
            }
        }
    }
}
