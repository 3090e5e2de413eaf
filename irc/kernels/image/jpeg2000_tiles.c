/* JPEG 2000: one tile, from its packets to its samples. */

/* Lay out the code blocks of one precinct in one band: those that meet the part of the band from (x0, y0) to below (x1,
 * y1). */
static int jpeg2000_lay_out_patch(jpeg2000_memory *memory, jpeg2000_patch *patch, const jpeg2000_resolution *resolution,
                                  int64_t x0, int64_t y0, int64_t x1, int64_t y1) {
    if (x0 >= x1 || y0 >= y1) return 0;
    patch->x0 = (int32_t)(x0 >> resolution->block_width);
    patch->y0 = (int32_t)(y0 >> resolution->block_height);
    patch->across = (int32_t)(jpeg2000_up(x1, resolution->block_width) - patch->x0);
    patch->down = (int32_t)(jpeg2000_up(y1, resolution->block_height) - patch->y0);
    int64_t nodes = jpeg2000_tree_size(patch->across, patch->down);
    patch->blocks = jpeg2000_take(memory, (int64_t)patch->across * patch->down, sizeof(jpeg2000_block));
    patch->included = jpeg2000_take(memory, 2 * nodes, sizeof(jpeg2000_node));
    if (!patch->blocks || !patch->included) return 1;
    patch->planes = patch->included + nodes;
    return 0;
}

/* Lay out the precincts of a resolution with their code blocks. */
static int jpeg2000_lay_out_precincts(jpeg2000_memory *memory, jpeg2000_resolution *resolution) {
    int32_t half = resolution->bands == 3; /* the bands have half as many samples */
    int32_t width = resolution->precinct_width - half, height = resolution->precinct_height - half;
    if (resolution->down > 0 && resolution->across > memory->left / resolution->down) return 1;
    int64_t count = resolution->across * resolution->down;
    resolution->precincts = jpeg2000_take(memory, count, sizeof(jpeg2000_precinct));
    if (!resolution->precincts) return 1;
    for (int64_t k = 0; k < count; k++) {
        int64_t x = ((resolution->area.x0 >> resolution->precinct_width) + k % resolution->across) << width;
        int64_t y = ((resolution->area.y0 >> resolution->precinct_height) + k / resolution->across) << height;
        for (int32_t b = 0; b < resolution->bands; b++) {
            const jpeg2000_area *band = &resolution->band[b].area;
            if (jpeg2000_lay_out_patch(memory, resolution->precincts[k].patch + b, resolution,
                                       jpeg2000_most(x, band->x0), jpeg2000_most(y, band->y0),
                                       jpeg2000_least(x + ((int64_t)1 << width), band->x1),
                                       jpeg2000_least(y + ((int64_t)1 << height), band->y1)))
                return 1;
        }
    }
    return 0;
}

/* Find the bit planes and the step of a band, E.1. */
static int jpeg2000_band_step(jpeg2000_band *band, const jpeg2000_style *style, int32_t number, int32_t precision) {
    int32_t derived = style->quantization == 1;
    if (!derived && number >= style->steps) return 1;
    int32_t exponent = style->step[derived ? 0 : number] >> 11, mantissa = style->step[derived ? 0 : number] & 0x7FF;
    if (derived && number > 0) exponent = (int32_t)jpeg2000_most(exponent - (number - 1) / 3, 0);
    band->bit_planes = (int32_t)jpeg2000_most(exponent + style->guard_bits - 1, 0) + style->shift;
    band->step =
        0.5f * (float)((1.0 + mantissa / 2048.0) * (double)(1 << precision) / (double)((int64_t)1 << exponent));
    return 0;
}

/* Lay out a resolution of a component in a tile, B.5 to B.7. */
static int jpeg2000_lay_out_resolution(jpeg2000_memory *memory, const jpeg2000_area *tile,
                                       jpeg2000_component *component, int32_t r, int32_t precision) {
    jpeg2000_resolution *resolution = component->resolutions + r;
    const jpeg2000_style *style = &component->style;
    int32_t shift = style->levels - r;
    resolution->shift = shift;
    resolution->area = (jpeg2000_area){jpeg2000_up(tile->x0, shift), jpeg2000_up(tile->y0, shift),
                                       jpeg2000_up(tile->x1, shift), jpeg2000_up(tile->y1, shift)};
    resolution->bands = r ? 3 : 1;
    resolution->precinct_width = style->precinct[r] & 15;
    resolution->precinct_height = style->precinct[r] >> 4;
    if (r && (!resolution->precinct_width || !resolution->precinct_height)) return 1;
    resolution->block_width = (int32_t)jpeg2000_least(style->block_width, resolution->precinct_width - (r > 0));
    resolution->block_height = (int32_t)jpeg2000_least(style->block_height, resolution->precinct_height - (r > 0));
    const jpeg2000_area *area = &resolution->area;
    if (area->x0 < area->x1 && area->y0 < area->y1) {
        resolution->across =
            jpeg2000_up(area->x1, resolution->precinct_width) - (area->x0 >> resolution->precinct_width);
        resolution->down =
            jpeg2000_up(area->y1, resolution->precinct_height) - (area->y0 >> resolution->precinct_height);
    }
    for (int32_t b = 0; b < resolution->bands; b++) {
        jpeg2000_band *band = resolution->band + b;
        band->kind = r ? b + 1 : 0;
        int64_t half = r ? (int64_t)1 << shift : 0, right = half * (band->kind & 1), below = half * (band->kind >> 1);
        int32_t level = shift + (r > 0);
        band->area = (jpeg2000_area){jpeg2000_up(tile->x0 - right, level), jpeg2000_up(tile->y0 - below, level),
                                     jpeg2000_up(tile->x1 - right, level), jpeg2000_up(tile->y1 - below, level)};
        if (band->kind & 1) band->left = resolution[-1].area.x1 - resolution[-1].area.x0;
        if (band->kind >> 1) band->top = resolution[-1].area.y1 - resolution[-1].area.y0;
        if (jpeg2000_band_step(band, style, r ? 3 * (r - 1) + band->kind : 0, precision)) return 1;
    }
    return jpeg2000_lay_out_precincts(memory, resolution);
}

/* Lay out a tile: the components below `wanted` have planes of samples. */
static int jpeg2000_lay_out(jpeg2000_memory *memory, jpeg2000_tile *tile, int32_t wanted) {
    int64_t samples = (tile->area.x1 - tile->area.x0) * (tile->area.y1 - tile->area.y0);
    for (int32_t c = 0; c < tile->grid->components; c++) {
        jpeg2000_component *component = tile->component + c;
        component->style = tile->parameters.component[c];
        if (!component->style.coding_rank || !component->style.step_rank) return 1;
        component->plane = c < wanted ? jpeg2000_take(memory, samples, sizeof(jpeg2000_sample)) : 0;
        component->resolutions = jpeg2000_take(memory, component->style.levels + 1, sizeof(jpeg2000_resolution));
        if ((c < wanted && !component->plane) || !component->resolutions) return 1;
        for (int32_t r = 0; r <= component->style.levels; r++)
            if (jpeg2000_lay_out_resolution(memory, &tile->area, component, r, tile->grid->precision[c])) return 1;
    }
    return 0;
}

/* Decode the passes of a block. `segment` has room for all bytes of the file and two more. */
static void jpeg2000_decode_block(const jpeg2000_tile *tile, const jpeg2000_block *block, jpeg2000_coder *coder,
                                  int32_t style, uint8_t *segment) {
    uint32_t next = block->first;
    int32_t pass = 0;
    while (pass < block->passes) {
        int32_t end = pass, limit = jpeg2000_segment_end(style, pass);
        int64_t length = 0;
        while (end < limit && next != JPEG2000_NO_CHUNK) {
            const jpeg2000_chunk *chunk = tile->chunks + next;
            memcpy(segment + length, tile->bytes + chunk->offset, chunk->length_and_passes & 0xFFFFFF);
            length += chunk->length_and_passes & 0xFFFFFF;
            end += (int32_t)(chunk->length_and_passes >> 24);
            next = chunk->next;
        }
        segment[length] = segment[length + 1] = 0xFF;
        jpeg2000_decode_segment(coder, segment, pass, end, block->bit_planes, style);
        pass = end;
    }
}

/* Decode the blocks of a patch into the plane of the component. */
static void jpeg2000_decode_patch(const jpeg2000_tile *tile, const jpeg2000_component *component,
                                  const jpeg2000_resolution *resolution, const jpeg2000_patch *patch,
                                  const jpeg2000_band *band, jpeg2000_coder *coder, uint8_t *segment) {
    int64_t stride = tile->area.x1 - tile->area.x0;
    int32_t shift = component->style.shift;
    for (int64_t k = 0; k < (int64_t)patch->across * patch->down; k++) {
        const jpeg2000_block *block = patch->blocks + k;
        if (!block->passes) continue;
        int64_t x = (patch->x0 + k % patch->across) << resolution->block_width, y = (patch->y0 + k / patch->across)
                                                                                    << resolution->block_height;
        int64_t x0 = jpeg2000_most(x, band->area.x0),
                x1 = jpeg2000_least(x + (1 << resolution->block_width), band->area.x1);
        int64_t y0 = jpeg2000_most(y, band->area.y0),
                y1 = jpeg2000_least(y + (1 << resolution->block_height), band->area.y1);
        jpeg2000_begin_block(coder, (int32_t)(x1 - x0), (int32_t)(y1 - y0), band->kind, component->style.block_style);
        jpeg2000_decode_block(tile, block, coder, component->style.block_style, segment);
        jpeg2000_sample *to =
            component->plane + (band->top + y0 - band->area.y0) * stride + band->left + x0 - band->area.x0;
        for (int64_t i = 0; i < y1 - y0; i++)
            for (int64_t j = 0; j < x1 - x0; j++) {
                int32_t value = coder->data[i * coder->width + j];
                if (value >= 1 << shift || -value >= 1 << shift)
                    value = value < 0 ? -(-value >> shift) : value >> shift;
                if (component->style.reversible) to[i * stride + j].whole = value / 2;
                else to[i * stride + j].real = jpeg2000_product((float)value, band->step);
            }
    }
}

static void jpeg2000_decode_component(const jpeg2000_tile *tile, const jpeg2000_component *component,
                                      jpeg2000_coder *coder, uint8_t *segment) {
    for (int32_t r = 0; r <= component->style.levels; r++) {
        const jpeg2000_resolution *resolution = component->resolutions + r;
        for (int64_t k = 0; k < resolution->across * resolution->down; k++)
            for (int32_t b = 0; b < resolution->bands; b++)
                jpeg2000_decode_patch(tile, component, resolution, resolution->precincts[k].patch + b,
                                      resolution->band + b, coder, segment);
    }
}

/* Turn the planes of a tile, which hold coefficients, into samples within their precision. `line` holds 8 lines. */
static int jpeg2000_reconstruct(const jpeg2000_tile *tile, int32_t wanted, jpeg2000_sample *line) {
    const jpeg2000_component *component = tile->component;
    int64_t width = tile->area.x1 - tile->area.x0, samples = width * (tile->area.y1 - tile->area.y0);
    for (int32_t c = 0; c < wanted; c++) jpeg2000_inverse_wavelet(component + c, width, line);
    if (tile->parameters.transform && tile->grid->components >= 3) {
        int32_t reversible = component[0].style.reversible;
        if (component[1].style.reversible != reversible || component[2].style.reversible != reversible) return 1;
        if (reversible) jpeg2000_inverse_rct(component[0].plane, component[1].plane, component[2].plane, samples);
        else jpeg2000_inverse_ict(component[0].plane, component[1].plane, component[2].plane, samples);
    }
    for (int32_t c = 0; c < wanted; c++)
        jpeg2000_level_shift(component[c].plane, samples, component[c].style.reversible, tile->grid->precision[c],
                             tile->grid->is_signed[c]);
    return 0;
}
