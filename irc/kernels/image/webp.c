/* WebP images: the container (RIFF). The sources go in this order: webp_tables.c, webp_predict.c, webp_filter.c,
 * webp_lossy.c, webp_prefix.c, webp_transform.c, webp_lossless.c, webp.c.
 *
 * Of an animation the first frame is decoded, on a black canvas. Alpha is left out: samples are those that the file
 * stores, also where they are transparent. Profiles of colour are ignored.
 * Not supported: lossless images whose prefix codes have far more symbols than the image can use, for which
 * webp_lossless_decode has no room. */

/* Where the image of a file is: the size of the canvas, the place of the frame on it and its bitstream. */
typedef struct {
    int64_t height, width, top, left, frame_height, frame_width;
    const uint8_t *stream;
    int64_t count;
    int lossless;
} webp_image;

/* Read a little-endian number of three or four bytes. */
static int64_t webp_little(const uint8_t *bytes, int size) {
    int64_t value = 0;
    while (size-- > 0) value = value << 8 | bytes[size];
    return value;
}

/* Find the bitstream among chunks. In a frame of an animation (`frame`) only alpha may precede it. Returns 1 if it is
 * not there or damaged at its beginning. */
static int webp_find_stream(const uint8_t *bytes, int64_t count, int frame, webp_image *image) {
    while (count >= 8) {
        const int64_t size = webp_little(bytes + 4, 4), padded = size + (size & 1);
        if (padded > count - 8) return 1;
        image->lossless = memcmp(bytes, "VP8L", 4) == 0;
        if (image->lossless || memcmp(bytes, "VP8 ", 4) == 0) {
            image->stream = bytes + 8;
            image->count = padded; /* libwebp reads a bitstream that is one byte short, too */
            return (image->lossless ? webp_lossless_size : webp_lossy_size)(image->stream, size, &image->frame_height,
                                                                            &image->frame_width);
        }
        if (frame && memcmp(bytes, "ALPH", 4) != 0) return 1;
        bytes += 8 + padded;
        count -= 8 + padded;
    }
    return 1;
}

/* Find the first frame of an animation among chunks. Returns 1 if it is not there or damaged. */
static int webp_find_frame(const uint8_t *bytes, int64_t count, webp_image *image) {
    while (count >= 8) {
        const int64_t size = webp_little(bytes + 4, 4), padded = size + (size & 1);
        if (padded > count - 8) return 1;
        if (memcmp(bytes, "ANMF", 4) == 0) {
            if (size < 16 || webp_find_stream(bytes + 24, size - 16, 1, image)) return 1;
            image->left = 2 * webp_little(bytes + 8, 3);
            image->top = 2 * webp_little(bytes + 11, 3);
            return image->frame_width != 1 + webp_little(bytes + 14, 3) ||
                   image->frame_height != 1 + webp_little(bytes + 17, 3);
        }
        bytes += 8 + padded;
        count -= 8 + padded;
    }
    return 1;
}

/* Find the image of a file. Returns 1 if these bytes are no valid WebP file. */
static int webp_find_image(const uint8_t *bytes, int64_t count, webp_image *image) {
    memset(image, 0, sizeof *image);
    if (count < 20 || memcmp(bytes, "RIFF", 4) != 0 || memcmp(bytes + 8, "WEBP", 4) != 0) return 1;
    const int64_t size = webp_little(bytes + 4, 4);
    if (size < 12 || size > count - 8) return 1;
    bytes += 12;
    count = size - 4;
    if (memcmp(bytes, "VP8X", 4) != 0) {
        if (memcmp(bytes, "VP8 ", 4) != 0 && memcmp(bytes, "VP8L", 4) != 0) return 1;
        if (webp_find_stream(bytes, count, 0, image)) return 1;
        image->height = image->frame_height;
        image->width = image->frame_width;
        return 0;
    }
    const int64_t header = webp_little(bytes + 4, 4), padded = header + (header & 1);
    if (header < 10 || padded > count - 8) return 1;
    const int animated = bytes[8] >> 1 & 1;
    image->width = 1 + webp_little(bytes + 12, 3);
    image->height = 1 + webp_little(bytes + 15, 3);
    if (image->width * image->height > UINT32_MAX) return 1;
    bytes += 8 + padded;
    count -= 8 + padded;
    if (animated ? webp_find_frame(bytes, count, image) : webp_find_stream(bytes, count, 0, image)) return 1;
    if (!animated && (image->frame_width != image->width || image->frame_height != image->height)) return 1;
    return image->left + image->frame_width > image->width || image->top + image->frame_height > image->height;
}

/* Read the size of the image from its header. Returns 0, or 1 if these bytes are no valid WebP file. */
static int webp_size(const uint8_t *bytes, int64_t count, int64_t *height, int64_t *width) {
    webp_image image;
    if (webp_find_image(bytes, count, &image)) return 1;
    *height = image.height;
    *width = image.width;
    return 0;
}

/* Count the bytes of scratch memory for decoding: 9 (h + 16) (w + 16) + 8 n + 294912, with n the bytes of the file. */
static int64_t webp_scratch(int64_t height, int64_t width, int64_t count) {
    return 9 * (height + 16) * (width + 16) + 8 * count + 294912;
}

/* Decode into height x width x 3 bytes of RGB. Returns 0, or 1 if the file is damaged or uses what is not supported. */
static int webp_decode(const uint8_t *bytes, int64_t count, uint8_t *rgb, int64_t height, int64_t width,
                       uint8_t *scratch) {
    webp_image image;
    if (webp_find_image(bytes, count, &image) || image.height != height || image.width != width) return 1;
    const int64_t pitch = 3 * width;
    if (image.frame_height < height || image.frame_width < width) memset(rgb, 0, (size_t)(height * pitch));
    return (image.lossless ? webp_lossless_decode : webp_lossy_decode)(
        image.stream, image.count, rgb + image.top * pitch + 3 * image.left, pitch, image.frame_height,
        image.frame_width, scratch);
}
