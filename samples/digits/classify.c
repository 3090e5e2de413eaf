/* Classifies images of digits with the C of digits.onnx; no library but C's own.  See samples/README.md.
 *
 *     classify digits_weights.bin images.f32
 *
 * images.f32: any number of images, each 8 x 8 floats, without a header.  Prints a digit for each, and returns 0, or 1
 * with a message on stderr. */

#include "digits.h"

#include <stdio.h>
#include <stdlib.h>

enum { PIXELS = 64, DIGITS = 10, ALIGNMENT = 64 };

static int fail(const char *what) {
    fprintf(stderr, "classify: %s\n", what);
    return 1;
}

/* A file in aligned memory, and its size in bytes; NULL if it cannot be read. */
static void *contents(const char *path, size_t *size) {
    FILE *file = fopen(path, "rb");
    if (!file) return NULL;
    long end = fseek(file, 0, SEEK_END) ? -1 : ftell(file);
    void *bytes = NULL;
    if (end > 0) {
        rewind(file);
        *size = (size_t)end;
        bytes = aligned_alloc(ALIGNMENT, (*size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
        if (bytes && fread(bytes, 1, *size, file) != *size) {
            free(bytes);
            bytes = NULL;
        }
    }
    fclose(file);
    return bytes;
}

int main(int argc, char **argv) {
    if (argc != 3) return fail("usage: classify digits_weights.bin images.f32");
    size_t weight_bytes = 0, image_bytes = 0;
    void *weights = contents(argv[1], &weight_bytes);
    float *images = contents(argv[2], &image_bytes);
    if (!weights || weight_bytes != DIGITS_WEIGHTS_BYTES) return fail("the weights cannot be read");
    if (!images || image_bytes % (PIXELS * sizeof *images)) return fail("the images cannot be read");

    /* The batch size is a parameter: it decides how much memory a context needs. */
    const int64_t batch = (int64_t)(image_bytes / (PIXELS * sizeof *images));
    const size_t size = digits_context_size(&batch);
    digits_ctx *context = size ? aligned_alloc(ALIGNMENT, (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT) : NULL;
    float *scores = malloc((size_t)batch * DIGITS * sizeof *scores);
    if (!context || !scores) return fail("not enough memory");

    /* NULL: on this thread.  After this nothing is allocated, however often the model runs. */
    int status = digits_init(context, weights, NULL);
    if (status == DIGITS_STATUS_OK) status = digits_plan(context, &batch);
    if (status == DIGITS_STATUS_OK) status = digits_run(context, (const void *[]){images}, (void *[]){scores}, NULL);
    if (status != DIGITS_STATUS_OK) {
        fprintf(stderr, "classify: status %d; irc explain IRC%d\n", status, status);
        return 1;
    }
    for (int64_t i = 0; i < batch; i++) {
        int best = 0;
        for (int k = 1; k < DIGITS; k++)
            if (scores[i * DIGITS + k] > scores[i * DIGITS + best]) best = k;
        printf("%d\n", best);
    }
    free(scores);
    free(context);
    free(images);
    free(weights);
    return 0;
}
