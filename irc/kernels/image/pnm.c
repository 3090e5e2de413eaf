/* Portable bitmaps, greymaps and pixmaps, P1 to P6. Greys of more than 8 bits become white from 255 on, as Pillow has
 * them. Not supported: PAM (P7), floats (Pf). */

typedef struct pnm_header {
    int64_t height, width, most; /* most: the largest value of a sample */
    int64_t at;                  /* where the pixels begin */
    int kind;
} pnm_header;

static int pnm_space(uint8_t c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Read a number of at most 10 digits, which whitespace or the end follows. Returns -1 if there is none. */
static int64_t pnm_number(const uint8_t *bytes, int64_t count, int64_t *at) {
    int64_t value = 0, digits = 0, k = *at;
    for (; k < count; k++) {
        const uint8_t c = bytes[k];
        if (c == '#') {
            while (k < count && bytes[k] != '\n' && bytes[k] != '\r') k++;
        } else if (pnm_space(c)) {
            if (digits) break;
        } else {
            if (c < '0' || c > '9' || digits == 10) return -1;
            value = value * 10 + (c - '0');
            digits++;
        }
    }
    *at = k < count ? k + 1 : count;
    return digits ? value : -1;
}

static int pnm_read_header(const uint8_t *bytes, int64_t count, pnm_header *h) {
    if (count < 3 || bytes[0] != 'P' || bytes[1] < '1' || bytes[1] > '6' || !pnm_space(bytes[2])) return 1;
    h->kind = bytes[1] - '0';
    h->at = 3;
    h->width = pnm_number(bytes, count, &h->at);
    h->height = pnm_number(bytes, count, &h->at);
    h->most = h->kind == 1 || h->kind == 4 ? 1 : pnm_number(bytes, count, &h->at);
    return h->width < 1 || h->height < 1 || h->width > INT32_MAX || h->height > INT32_MAX || h->most < 1 ||
           h->most > 65535;
}

static int pnm_size(const uint8_t *bytes, int64_t count, int64_t *height, int64_t *width) {
    pnm_header h;
    if (pnm_read_header(bytes, count, &h)) return 1;
    *height = h.height;
    *width = h.width;
    return 0;
}

/* 0 */
static int64_t pnm_scratch(int64_t height, int64_t width, int64_t count) {
    (void)height;
    (void)width;
    (void)count;
    return 0;
}

/* Scale a sample to 8 bits, or a grey one of more than 8 bits to 16, of which 255 and more are white; half to even. */
static uint8_t pnm_sample(int64_t value, int64_t most, int grey) {
    const double scaled = (double)value / (double)most * (grey && most > 255 ? 65535 : 255);
    int64_t whole = (int64_t)scaled;
    const double rest = scaled - (double)whole;
    if (rest > 0.5 || (rest == 0.5 && whole % 2)) whole++;
    return (uint8_t)(whole < 255 ? whole : 255);
}

static int pnm_plain_bits(const uint8_t *bytes, int64_t count, int64_t at, uint8_t *rgb, int64_t pixels) {
    for (int64_t i = 0; i < pixels; at++) {
        if (at >= count) return 1;
        if (bytes[at] == '#') {
            while (at < count && bytes[at] != '\n' && bytes[at] != '\r') at++;
        } else if (!pnm_space(bytes[at])) {
            if (bytes[at] != '0' && bytes[at] != '1') return 1;
            memset(rgb + 3 * i++, bytes[at] == '0' ? 255 : 0, 3);
        }
    }
    return 0;
}

static int pnm_bits(const uint8_t *bytes, int64_t left, uint8_t *rgb, int64_t height, int64_t width) {
    const int64_t row = (width + 7) / 8;
    if (left / row < height) return 1;
    for (int64_t y = 0; y < height; y++)
        for (int64_t x = 0; x < width; x++)
            memset(rgb + 3 * (y * width + x), bytes[y * row + x / 8] >> (7 - x % 8) & 1 ? 0 : 255, 3);
    return 0;
}

static int pnm_decode(const uint8_t *bytes, int64_t count, uint8_t *rgb, int64_t height, int64_t width,
                      uint8_t *scratch) {
    pnm_header h;
    (void)scratch;
    if (pnm_read_header(bytes, count, &h) || h.height != height || h.width != width) return 1;
    if (h.kind == 1) return pnm_plain_bits(bytes, count, h.at, rgb, height * width);
    if (h.kind == 4) return pnm_bits(bytes + h.at, count - h.at, rgb, height, width);
    const int plain = h.kind < 4, grey = h.kind == 2 || h.kind == 5;
    const int64_t samples = height * width * (grey ? 1 : 3), size = h.most > 255 ? 2 : 1;
    if (!plain && (count - h.at) / size < samples) return 1;
    for (int64_t i = 0; i < samples; i++) {
        int64_t value;
        if (plain) {
            value = pnm_number(bytes, count, &h.at);
            if (value < 0 || value > h.most) return 1;
        } else {
            const uint8_t *from = bytes + h.at + i * size;
            value = size == 2 ? from[0] << 8 | from[1] : from[0];
        }
        const uint8_t sample = h.most == 255 ? (uint8_t)value : pnm_sample(value, h.most, grey);
        if (grey) memset(rgb + 3 * i, sample, 3);
        else rgb[i] = sample;
    }
    return 0;
}
