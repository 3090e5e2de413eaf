/* JPEG 2000, tier 2: packets and their headers with tag trees (T.800 annex B). */

/* Bits of a packet header; after a byte 0xFF comes one of seven bits. */
typedef struct {
    const uint8_t *bytes;
    int64_t at, end;
    int32_t byte, left, failed;
} jpeg2000_bits;

/* One tile while its packets are read. */
typedef struct {
    const jpeg2000_grid *grid;
    jpeg2000_parameters parameters;
    jpeg2000_area area;
    jpeg2000_component component[JPEG2000_COMPONENTS];
    const uint8_t *bytes; /* of all its packets */
    int64_t at, end;
    int32_t ended; /* between two packets: what would follow adds nothing */
    jpeg2000_chunk *chunks;
    int64_t chunk_count, chunk_limit;
} jpeg2000_tile;

static int32_t jpeg2000_header_bit(jpeg2000_bits *bits) {
    if (bits->left == 0) {
        if (bits->at >= bits->end) {
            bits->failed = 1;
            return 0;
        }
        bits->left = bits->byte == 0xFF ? 7 : 8;
        bits->byte = bits->bytes[bits->at++];
    }
    bits->left--;
    return bits->byte >> bits->left & 1;
}

static uint32_t jpeg2000_header_bits(jpeg2000_bits *bits, int32_t count) {
    uint32_t value = 0;
    for (int32_t k = 0; k < count; k++) value = value << 1 | (uint32_t)jpeg2000_header_bit(bits);
    return value;
}

/* Count the nodes of a tag tree. */
static int64_t jpeg2000_tree_size(int64_t across, int64_t down) {
    int64_t total = across * down;
    while (across * down > 1) {
        across = (across + 1) / 2;
        down = (down + 1) / 2;
        total += across * down;
    }
    return total;
}

/* Read a tag tree until it is known whether the value of leaf (x, y) is below `limit`. Returns whether it is; its node
 * then holds the value. */
static int32_t jpeg2000_tree_below(jpeg2000_bits *bits, jpeg2000_node *tree, int64_t across, int64_t down, int64_t x,
                                   int64_t y, int32_t limit) {
    jpeg2000_node *path[32];
    int32_t depth = 0, low = 0;
    for (;;) {
        path[depth++] = tree + y * across + x;
        if (across * down <= 1) break;
        tree += across * down;
        across = (across + 1) / 2;
        down = (down + 1) / 2;
        x /= 2;
        y /= 2;
    }
    while (depth > 0) {
        jpeg2000_node *node = path[--depth];
        if (node->low > low) low = node->low;
        while (low < limit && !node->known && !bits->failed) {
            if (jpeg2000_header_bit(bits)) node->known = 1;
            else low++;
        }
        node->low = (uint16_t)low;
    }
    return path[0]->known && low < limit;
}

/* Read the number of new passes, table B.4. */
static int32_t jpeg2000_pass_count(jpeg2000_bits *bits) {
    if (!jpeg2000_header_bit(bits)) return 1;
    if (!jpeg2000_header_bit(bits)) return 2;
    uint32_t more = jpeg2000_header_bits(bits, 2);
    if (more < 3) return (int32_t)(3 + more);
    more = jpeg2000_header_bits(bits, 5);
    if (more < 31) return (int32_t)(6 + more);
    return (int32_t)(37 + jpeg2000_header_bits(bits, 7));
}

/* Add a chunk to a block. Its bytes are found when the header is complete. */
static int jpeg2000_add_chunk(jpeg2000_tile *tile, jpeg2000_block *block, uint32_t length, int32_t passes) {
    if (tile->chunk_count >= tile->chunk_limit || length >= 1u << 24) return 1;
    uint32_t number = (uint32_t)tile->chunk_count++;
    tile->chunks[number].next = JPEG2000_NO_CHUNK;
    tile->chunks[number].length_and_passes = (uint32_t)passes << 24 | length;
    if (block->passes) tile->chunks[block->last].next = number;
    else block->first = number;
    block->last = number;
    block->passes = (uint8_t)(block->passes + passes);
    return 0;
}

/* Read what a packet header says of one code block. */
static int jpeg2000_block_header(jpeg2000_tile *tile, jpeg2000_bits *bits, const jpeg2000_patch *patch, int64_t x,
                                 int64_t y, int32_t layer, int32_t band_planes, int32_t style) {
    jpeg2000_block *block = patch->blocks + y * patch->across + x;
    if (block->passes) {
        if (!jpeg2000_header_bit(bits)) return 0;
    } else {
        if (!jpeg2000_tree_below(bits, patch->included, patch->across, patch->down, x, y, layer + 1)) return 0;
        int32_t missing = 0;
        while (!jpeg2000_tree_below(bits, patch->planes, patch->across, patch->down, x, y, missing + 1))
            if (bits->failed || ++missing > band_planes) return 1;
        if (band_planes - missing > JPEG2000_BIT_PLANES) return 1;
        block->bit_planes = (uint8_t)(band_planes - missing);
        block->length_bits = 3;
    }
    int32_t passes = jpeg2000_pass_count(bits);
    while (jpeg2000_header_bit(bits))
        if (++block->length_bits > 24) return 1;
    if (bits->failed || block->passes + passes > JPEG2000_PASSES) return 1;
    while (passes > 0) {
        int32_t part = (int32_t)jpeg2000_least(passes, jpeg2000_segment_end(style, block->passes) - block->passes),
                more = 0;
        while (part >> (more + 1)) more++;
        if (jpeg2000_add_chunk(tile, block, jpeg2000_header_bits(bits, block->length_bits + more), part)) return 1;
        passes -= part;
    }
    return 0;
}

/* Read one packet: the next layer of a precinct. */
static int jpeg2000_packet(jpeg2000_tile *tile, const jpeg2000_component *component,
                           const jpeg2000_resolution *resolution, jpeg2000_precinct *precinct) {
    int64_t first = tile->chunk_count;
    tile->ended = tile->at == tile->end;
    if (tile->ended) return 1;
    if (tile->parameters.start_markers && tile->end - tile->at >= 6 && jpeg2000_u16(tile->bytes + tile->at) == 0xFF91)
        tile->at += 6;
    jpeg2000_bits bits = {tile->bytes, tile->at, tile->end, 0, 0, 0};
    int32_t any = jpeg2000_header_bit(&bits);
    for (int32_t b = 0; any && b < resolution->bands; b++) {
        const jpeg2000_patch *patch = precinct->patch + b;
        for (int64_t y = 0; y < patch->down; y++)
            for (int64_t x = 0; x < patch->across; x++)
                if (jpeg2000_block_header(tile, &bits, patch, x, y, precinct->layers, resolution->band[b].bit_planes,
                                          component->style.block_style) ||
                    bits.failed)
                    return 1;
    }
    if (bits.byte == 0xFF) {
        bits.left = 0;
        jpeg2000_header_bit(&bits); /* a byte with a stuffed bit follows */
    }
    if (bits.failed) return 1;
    tile->at = bits.at;
    if (tile->parameters.end_markers && tile->end - tile->at >= 2 && jpeg2000_u16(tile->bytes + tile->at) == 0xFF92)
        tile->at += 2;
    for (int64_t k = first; k < tile->chunk_count; k++) {
        int64_t length = tile->chunks[k].length_and_passes & 0xFFFFFF;
        if (length > tile->end - tile->at) return 1;
        tile->chunks[k].offset = (uint32_t)tile->at;
        tile->at += length;
    }
    precinct->layers++;
    return 0;
}

/* Read the packets of one precinct up to layer `layers`. */
static int jpeg2000_precinct_packets(jpeg2000_tile *tile, int32_t c, int32_t r, int64_t number, int32_t layers) {
    jpeg2000_resolution *resolution = tile->component[c].resolutions + r;
    while (resolution->precincts[number].layers < layers)
        if (jpeg2000_packet(tile, tile->component + c, resolution, resolution->precincts + number)) return 1;
    return 0;
}

/* Read the packets of one layer of one resolution of one component. */
static int jpeg2000_layer_packets(jpeg2000_tile *tile, int32_t c, int32_t r, int32_t layer) {
    if (r > tile->component[c].style.levels) return 0;
    const jpeg2000_resolution *resolution = tile->component[c].resolutions + r;
    for (int64_t k = 0; k < resolution->across * resolution->down; k++)
        if (jpeg2000_precinct_packets(tile, c, r, k, layer + 1)) return 1;
    return 0;
}

/* Say where the next precinct of a resolution stands on the reference grid. Returns 0 if there is none. */
static int32_t jpeg2000_position(const jpeg2000_tile *tile, const jpeg2000_resolution *resolution, int64_t *x,
                                 int64_t *y) {
    if (resolution->next >= resolution->across * resolution->down) return 0;
    int64_t across = (resolution->area.x0 >> resolution->precinct_width) + resolution->next % resolution->across;
    int64_t down = (resolution->area.y0 >> resolution->precinct_height) + resolution->next / resolution->across;
    *x = jpeg2000_most(across << (resolution->precinct_width + resolution->shift), tile->area.x0);
    *y = jpeg2000_most(down << (resolution->precinct_height + resolution->shift), tile->area.y0);
    return 1;
}

/* Read the packets of some components and resolutions in the order of the positions of their precincts: from top to
 * bottom, from left to right. */
static int jpeg2000_position_packets(jpeg2000_tile *tile, int32_t first_c, int32_t last_c, int32_t first_r,
                                     int32_t last_r, int32_t layers) {
    for (int32_t c = first_c; c < last_c; c++)
        for (int32_t r = first_r; r < last_r && r <= tile->component[c].style.levels; r++)
            tile->component[c].resolutions[r].next = 0;
    for (;;) {
        int32_t best_c = -1, best_r = 0;
        int64_t best_x = 0, best_y = 0, x = 0, y = 0;
        for (int32_t c = first_c; c < last_c; c++)
            for (int32_t r = first_r; r < last_r && r <= tile->component[c].style.levels; r++) {
                if (!jpeg2000_position(tile, tile->component[c].resolutions + r, &x, &y)) continue;
                if (best_c >= 0 && (y > best_y || (y == best_y && x >= best_x))) continue;
                best_c = c;
                best_r = r;
                best_x = x;
                best_y = y;
            }
        if (best_c < 0) return 0;
        if (jpeg2000_precinct_packets(tile, best_c, best_r, tile->component[best_c].resolutions[best_r].next++, layers))
            return 1;
    }
}

/* Read the packets of one progression, B.12. */
static int jpeg2000_progress(jpeg2000_tile *tile, const jpeg2000_progression *p) {
    int32_t c0 = p->first_component, c1 = p->last_component, r0 = p->first_resolution, r1 = p->last_resolution;
    if (p->order == 0) {
        for (int32_t layer = 0; layer < p->layers; layer++)
            for (int32_t r = r0; r < r1; r++)
                for (int32_t c = c0; c < c1; c++)
                    if (jpeg2000_layer_packets(tile, c, r, layer)) return 1;
    } else if (p->order == 1) {
        for (int32_t r = r0; r < r1; r++)
            for (int32_t layer = 0; layer < p->layers; layer++)
                for (int32_t c = c0; c < c1; c++)
                    if (jpeg2000_layer_packets(tile, c, r, layer)) return 1;
    } else if (p->order == 2) {
        for (int32_t r = r0; r < r1; r++)
            if (jpeg2000_position_packets(tile, c0, c1, r, r + 1, p->layers)) return 1;
    } else if (p->order == 3) {
        return jpeg2000_position_packets(tile, c0, c1, r0, r1, p->layers);
    } else {
        for (int32_t c = c0; c < c1; c++)
            if (jpeg2000_position_packets(tile, c, c + 1, r0, r1, p->layers)) return 1;
    }
    return 0;
}

/* Say whether there was a packet of a component's full resolution. */
static int32_t jpeg2000_is_full(const jpeg2000_component *component) {
    const jpeg2000_resolution *resolution = component->resolutions + component->style.levels;
    for (int64_t k = 0; k < resolution->across * resolution->down; k++)
        if (resolution->precincts[k].layers) return 1;
    return 0;
}

/* Read all packets of a tile, or those that there are: as OpenJPEG does, if some are of the full resolution. */
static int jpeg2000_packets(jpeg2000_tile *tile) {
    const jpeg2000_parameters *parameters = &tile->parameters;
    jpeg2000_progression all = {
        0, JPEG2000_LEVELS + 1, 0, tile->grid->components, parameters->layers, parameters->order};
    int failed = parameters->changes ? 0 : jpeg2000_progress(tile, &all);
    for (int32_t k = 0; k < parameters->changes && !failed; k++)
        failed = jpeg2000_progress(tile, parameters->change + k);
    for (int32_t c = 0; c < tile->grid->components; c++)
        if (!jpeg2000_is_full(tile->component + c)) return 1;
    return failed && !tile->ended;
}
