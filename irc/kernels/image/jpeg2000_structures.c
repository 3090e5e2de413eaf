/* JPEG 2000: what the parts of the decoder share. The parts are one translation unit, in this order:
 * jpeg2000_structures.c, jpeg2000_tier1.c, jpeg2000_wavelets.c, jpeg2000_packets.c, jpeg2000_tiles.c,
 * jpeg2000_markers.c, jpeg2000.c. */

#include <stdint.h>
#include <string.h>

enum {
    JPEG2000_COMPONENTS = 4, /* the most that are read */
    JPEG2000_LEVELS = 32,    /* of decomposition */
    JPEG2000_BANDS = 3 * JPEG2000_LEVELS + 1,
    JPEG2000_CHANGES = 32,    /* of progression in one tile */
    JPEG2000_BIT_PLANES = 30, /* of a coefficient: one more is kept for the half of the last */
    JPEG2000_PASSES = 109     /* of a code block: three for each of the 37 bit planes of T.800, but one for the first */
};

#define JPEG2000_NO_CHUNK UINT32_MAX

/* Code-block styles, table A.19. */
enum { JPEG2000_BYPASS = 1, JPEG2000_RESET = 2, JPEG2000_TERMINATE = 4, JPEG2000_CAUSAL = 8, JPEG2000_SYMBOLS = 32 };

/* A coefficient or a sample: whole with the reversible wavelet, real with the other one. */
typedef union {
    int32_t whole;
    float real;
} jpeg2000_sample;

/* How one component is coded (COD, COC) and quantized (QCD, QCC). A rank says how close to the component it was said: a
 * marker of a lower rank does not replace it. */
typedef struct {
    uint8_t coding_rank, step_rank;
    uint8_t levels, block_width, block_height, block_style, reversible; /* sizes of blocks are exponents of two */
    uint8_t precinct[JPEG2000_LEVELS + 1]; /* exponents: across in the low half, down in the high one */
    uint8_t quantization;                  /* 0 none, 1 derived from the first step, 2 a step for each band */
    uint8_t guard_bits, steps;
    uint8_t shift;                 /* of a region of interest (RGN) */
    uint16_t step[JPEG2000_BANDS]; /* exponent << 11 | mantissa */
} jpeg2000_style;

/* One progression of packets: resolutions and components from first to below last, layers below `layers`. */
typedef struct {
    int32_t first_resolution, last_resolution, first_component, last_component, layers, order;
} jpeg2000_progression;

/* What the markers of the main header or of a tile say. */
typedef struct {
    int32_t order, layers, transform, changes, changes_rank;
    int32_t start_markers, end_markers; /* packets may begin with SOP; headers end with EPH */
    jpeg2000_progression change[JPEG2000_CHANGES];
    jpeg2000_style component[JPEG2000_COMPONENTS];
} jpeg2000_parameters;

/* The reference grid: the image, its tiles and its components (SIZ). */
typedef struct {
    int64_t x0, y0, x1, y1, tile_x0, tile_y0, tile_width, tile_height, across, down;
    int32_t components;
    uint8_t precision[JPEG2000_COMPONENTS], is_signed[JPEG2000_COMPONENTS];
} jpeg2000_grid;

typedef struct {
    int64_t x0, y0, x1, y1;
} jpeg2000_area;

/* What one packet adds to one codeword segment of a code block. */
typedef struct {
    uint32_t next, offset, length_and_passes; /* passes in the upper 8 bits */
} jpeg2000_chunk;

typedef struct {
    uint32_t first, last; /* chunks */
    uint8_t passes, bit_planes, length_bits;
} jpeg2000_block;

/* A node of a tag tree: what its value is at least, and whether it is just that. */
typedef struct {
    uint16_t low, known;
} jpeg2000_node;

/* The code blocks of one precinct in one band. */
typedef struct {
    jpeg2000_block *blocks;
    jpeg2000_node *included, *planes;
    int32_t x0, y0, across, down; /* in code blocks, from the origin of the band */
} jpeg2000_patch;

typedef struct {
    int32_t layers; /* read so far */
    jpeg2000_patch patch[3];
} jpeg2000_precinct;

typedef struct {
    jpeg2000_area area;
    int64_t left, top;        /* where its coefficients stand in the plane of the component */
    int32_t bit_planes, kind; /* kind: 0 LL, 1 HL, 2 LH, 3 HH */
    float step;
} jpeg2000_band;

typedef struct {
    jpeg2000_area area;
    int32_t bands, block_width, block_height;
    int64_t across, down, next; /* precincts; `next` is the cursor of progressions by position */
    int32_t precinct_width, precinct_height, shift;
    jpeg2000_precinct *precincts;
    jpeg2000_band band[3];
} jpeg2000_resolution;

typedef struct {
    jpeg2000_style style;
    jpeg2000_resolution *resolutions;
    jpeg2000_sample *plane; /* null where only packets are read (alpha) */
} jpeg2000_component;

/* Memory that is given out from the front. */
typedef struct {
    uint8_t *next;
    int64_t left;
} jpeg2000_memory;

/* Take `count` cleared things of `size` bytes. Returns null if the memory does not suffice. */
static void *jpeg2000_take(jpeg2000_memory *memory, int64_t count, int64_t size) {
    if (count < 0 || count > (memory->left - 15) / size) return 0;
    int64_t bytes = (count * size + 15) / 16 * 16;
    uint8_t *taken = memory->next;
    memory->next += bytes;
    memory->left -= bytes;
    memset(taken, 0, (size_t)bytes);
    return taken;
}

static int64_t jpeg2000_least(int64_t a, int64_t b) { return a < b ? a : b; }

static int64_t jpeg2000_most(int64_t a, int64_t b) { return a > b ? a : b; }

/* Divide by 2^shift and round up; numbers down to -2^32 are right too. */
static int64_t jpeg2000_up(int64_t value, int32_t shift) { return (value + ((int64_t)1 << shift) - 1) >> shift; }

static uint32_t jpeg2000_u16(const uint8_t *bytes) { return (uint32_t)bytes[0] << 8 | bytes[1]; }

static uint32_t jpeg2000_u32(const uint8_t *bytes) { return jpeg2000_u16(bytes) << 16 | jpeg2000_u16(bytes + 2); }
