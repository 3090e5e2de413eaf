/* JPEG 2000: the inverse wavelet transforms (T.800 annex F) and the inverse component transforms (annex G). */

enum { JPEG2000_LANES = 8 }; /* rows or columns that are transformed together */

/* Multiply and round to a float before anything is added, as OpenJPEG does. Rounding the exact product by its bits
 * keeps compilers that may contract from using a fused multiply-add. */
static float jpeg2000_product(float a, float b) {
    double exact = (double)a * (double)b;
    uint64_t bits;
    memcpy(&bits, &exact, sizeof bits);
    bits = (bits + 0xFFFFFFF + (bits >> 29 & 1)) & ~(uint64_t)0x1FFFFFFF;
    memcpy(&exact, &bits, sizeof bits);
    return (float)exact;
}

/* Undo the reversible 5/3 filter on `count` interleaved samples; `odd` says that the first one is of the high band. */
static void jpeg2000_reversible(jpeg2000_sample *line, int64_t count, int32_t odd) {
    if (count == 1) {
        for (int32_t k = 0; odd && k < JPEG2000_LANES; k++) line[k].whole /= 2;
        return;
    }
    for (int32_t high = 0; high < 2; high++) /* first the samples of the low band, then those of the high one */
        for (int64_t i = high ^ odd; i < count; i += 2) {
            jpeg2000_sample *at = line + i * JPEG2000_LANES;
            const jpeg2000_sample *before = i > 0 ? at - JPEG2000_LANES : at + JPEG2000_LANES,
                                  *after = i + 1 < count ? at + JPEG2000_LANES : at - JPEG2000_LANES;
            for (int32_t k = 0; k < JPEG2000_LANES; k++) { /* unsigned: a damaged file's sums may overflow */
                uint32_t sum = (uint32_t)before[k].whole + (uint32_t)after[k].whole;
                if (high) at[k].whole = (int32_t)((uint32_t)at[k].whole + (uint32_t)((int32_t)sum >> 1));
                else at[k].whole = (int32_t)((uint32_t)at[k].whole - (uint32_t)((int32_t)(sum + 2) >> 2));
            }
        }
}

/* Undo the irreversible 9/7 filter. The constants are OpenJPEG's: its high bands are twice as large, and their steps
 * half as large as in T.800. */
static void jpeg2000_irreversible(jpeg2000_sample *line, int64_t count, int32_t odd) {
    static const float scale[2] = {1.230174105f, 1.625732422f},
                       lifting[4] = {-0.443506852f, -0.882911075f, 0.052980118f, 1.586134342f};
    if (count == 1) return;
    for (int64_t i = 0; i < count; i++)
        for (int32_t k = 0; k < JPEG2000_LANES; k++)
            line[i * JPEG2000_LANES + k].real =
                jpeg2000_product(line[i * JPEG2000_LANES + k].real, scale[(i ^ odd) & 1]);
    for (int32_t step = 0; step < 4; step++)
        for (int64_t i = (step & 1) ^ odd; i < count; i += 2) {
            jpeg2000_sample *at = line + i * JPEG2000_LANES;
            const jpeg2000_sample *before = i > 0 ? at - JPEG2000_LANES : at + JPEG2000_LANES,
                                  *after = i + 1 < count ? at + JPEG2000_LANES : at - JPEG2000_LANES;
            for (int32_t k = 0; k < JPEG2000_LANES; k++)
                at[k].real += jpeg2000_product(before[k].real + after[k].real, lifting[step]);
        }
}

/* Undo one direction of one level on up to 8 lines: the samples of a line are `step` apart, the lines `across`. `low`
 * samples of the low band come first. */
static void jpeg2000_lines(jpeg2000_sample *first, int64_t count, int64_t low, int64_t step, int64_t across,
                           int64_t lines, int32_t odd, int32_t reversible, jpeg2000_sample *line) {
    for (int64_t i = 0; i < count; i++) {
        int64_t to = i < low ? 2 * i + odd : 2 * (i - low) + 1 - odd;
        for (int64_t k = 0; k < lines; k++) line[to * JPEG2000_LANES + k] = first[i * step + k * across];
    }
    if (reversible) jpeg2000_reversible(line, count, odd);
    else jpeg2000_irreversible(line, count, odd);
    for (int64_t i = 0; i < count; i++)
        for (int64_t k = 0; k < lines; k++) first[i * step + k * across] = line[i * JPEG2000_LANES + k];
}

/* Turn the bands of a component, which stand in the plane's corners, into its samples. `line` holds 8 lines. */
static void jpeg2000_inverse_wavelet(const jpeg2000_component *component, int64_t stride, jpeg2000_sample *line) {
    for (int32_t r = 1; r <= component->style.levels; r++) {
        const jpeg2000_area *area = &component->resolutions[r].area, *low = &component->resolutions[r - 1].area;
        int64_t width = area->x1 - area->x0, height = area->y1 - area->y0;
        int32_t reversible = component->style.reversible;
        for (int64_t y = 0; y < height && width; y += JPEG2000_LANES)
            jpeg2000_lines(component->plane + y * stride, width, low->x1 - low->x0, 1, stride,
                           jpeg2000_least(JPEG2000_LANES, height - y), area->x0 & 1, reversible, line);
        for (int64_t x = 0; x < width && height; x += JPEG2000_LANES)
            jpeg2000_lines(component->plane + x, height, low->y1 - low->y0, stride, 1,
                           jpeg2000_least(JPEG2000_LANES, width - x), area->y0 & 1, reversible, line);
    }
}

/* Undo the reversible component transform (RCT). */
static void jpeg2000_inverse_rct(jpeg2000_sample *y, jpeg2000_sample *u, jpeg2000_sample *v, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        uint32_t blue = (uint32_t)u[i].whole, red = (uint32_t)v[i].whole;
        uint32_t green = (uint32_t)y[i].whole - (uint32_t)((int32_t)(blue + red) >> 2);
        y[i].whole = (int32_t)(red + green);
        u[i].whole = (int32_t)green;
        v[i].whole = (int32_t)(blue + green);
    }
}

/* Undo the irreversible component transform (ICT). */
static void jpeg2000_inverse_ict(jpeg2000_sample *y, jpeg2000_sample *u, jpeg2000_sample *v, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        float light = y[i].real, blue = u[i].real, red = v[i].real;
        y[i].real = light + jpeg2000_product(red, 1.402f);
        u[i].real = light - jpeg2000_product(blue, 0.34413f) - jpeg2000_product(red, 0.71414f);
        v[i].real = light + jpeg2000_product(blue, 1.772f);
    }
}

/* Round to the nearest whole number, halves to the even one; numbers beyond int32 and NaN to its ends. */
static int32_t jpeg2000_round(float value) {
    if (!(value > -2147483648.0f)) return INT32_MIN;
    if (value >= 2147483648.0f) return INT32_MAX;
    int32_t whole = (int32_t)value;
    float rest = value - (float)whole;
    if (rest > 0.5f || (rest == 0.5f && whole & 1)) return whole + 1;
    if (rest < -0.5f || (rest == -0.5f && whole & 1)) return whole - 1;
    return whole;
}

/* Turn a component's samples into whole numbers within its precision: undo the level shift of unsigned ones. */
static void jpeg2000_level_shift(jpeg2000_sample *plane, int64_t count, int32_t reversible, int32_t precision,
                                 int32_t is_signed) {
    int32_t half = 1 << (precision - 1), low = is_signed ? -half : 0, high = low + 2 * half - 1;
    for (int64_t i = 0; i < count; i++) {
        int64_t value = (int64_t)(reversible ? plane[i].whole : jpeg2000_round(plane[i].real)) + (is_signed ? 0 : half);
        plane[i].whole = (int32_t)jpeg2000_most(low, jpeg2000_least(high, value));
    }
}
