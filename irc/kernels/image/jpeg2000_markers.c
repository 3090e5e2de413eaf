/* JPEG 2000: the marker segments of the main header and of tile-part headers (T.800 annex A). */

enum { JPEG2000_MAIN_RANK = 1, JPEG2000_TILE_RANK = 3 }; /* what is said of one component ranks one higher */

/* Read SIZ: the segment after its length. */
static int jpeg2000_read_grid(const uint8_t *bytes, int64_t count, jpeg2000_grid *grid) {
    if (count < 36) return 1;
    grid->x1 = jpeg2000_u32(bytes + 2);
    grid->y1 = jpeg2000_u32(bytes + 6);
    grid->x0 = jpeg2000_u32(bytes + 10);
    grid->y0 = jpeg2000_u32(bytes + 14);
    grid->tile_width = jpeg2000_u32(bytes + 18);
    grid->tile_height = jpeg2000_u32(bytes + 22);
    grid->tile_x0 = jpeg2000_u32(bytes + 26);
    grid->tile_y0 = jpeg2000_u32(bytes + 30);
    grid->components = (int32_t)jpeg2000_u16(bytes + 34);
    if (grid->components < 1 || grid->components > JPEG2000_COMPONENTS || count < 36 + 3 * grid->components) return 1;
    if (grid->x0 >= grid->x1 || grid->y0 >= grid->y1 || grid->x1 - grid->x0 > INT32_MAX ||
        grid->y1 - grid->y0 > INT32_MAX)
        return 1;
    if (!grid->tile_width || !grid->tile_height || grid->tile_x0 > grid->x0 || grid->tile_y0 > grid->y0) return 1;
    if (grid->tile_x0 + grid->tile_width <= grid->x0 || grid->tile_y0 + grid->tile_height <= grid->y0) return 1;
    grid->across = (grid->x1 - grid->tile_x0 + grid->tile_width - 1) / grid->tile_width;
    grid->down = (grid->y1 - grid->tile_y0 + grid->tile_height - 1) / grid->tile_height;
    if (grid->across > 65535 || grid->down > 65535 || grid->across * grid->down > 65535) return 1;
    for (int32_t c = 0; c < grid->components; c++) {
        const uint8_t *component = bytes + 36 + 3 * c;
        grid->precision[c] = (uint8_t)((component[0] & 127) + 1);
        grid->is_signed[c] = component[0] >> 7;
        if (grid->precision[c] > 16 || component[1] != 1 || component[2] != 1) return 1;
    }
    return 0;
}

/* Read how one component is coded: what COD and COC have in common. */
static int jpeg2000_read_style(const uint8_t *bytes, int64_t count, int32_t with_precincts, jpeg2000_style *style,
                               int32_t rank) {
    if (count < 5 || bytes[0] > JPEG2000_LEVELS || bytes[1] > 8 || bytes[2] > 8 || bytes[1] + bytes[2] > 8 ||
        bytes[3] > 63 || bytes[4] > 1)
        return 1;
    if (with_precincts && count < 6 + bytes[0]) return 1;
    if (rank < style->coding_rank) return 0;
    style->coding_rank = (uint8_t)rank;
    style->levels = bytes[0];
    style->block_width = (uint8_t)(bytes[1] + 2);
    style->block_height = (uint8_t)(bytes[2] + 2);
    style->block_style = bytes[3];
    style->reversible = bytes[4];
    for (int32_t r = 0; r <= style->levels; r++) style->precinct[r] = with_precincts ? bytes[5 + r] : 255;
    return 0;
}

/* Read COD: the segment after its length. */
static int jpeg2000_read_coding(const uint8_t *bytes, int64_t count, int32_t components,
                                jpeg2000_parameters *parameters, int32_t rank) {
    if (count < 5 || bytes[1] > 4 || bytes[4] > 1) return 1;
    parameters->start_markers = bytes[0] & 2;
    parameters->end_markers = bytes[0] & 4;
    parameters->order = bytes[1];
    parameters->layers = (int32_t)jpeg2000_u16(bytes + 2);
    parameters->transform = bytes[4];
    if (!parameters->layers) return 1;
    for (int32_t c = 0; c < components; c++)
        if (jpeg2000_read_style(bytes + 5, count - 5, bytes[0] & 1, parameters->component + c, rank)) return 1;
    return 0;
}

/* Read how one component is quantized: what QCD and QCC have in common. */
static int jpeg2000_read_steps(const uint8_t *bytes, int64_t count, jpeg2000_style *style, int32_t rank) {
    if (count < 1 || (bytes[0] & 31) > 2) return 1;
    if (rank < style->step_rank) return 0;
    style->step_rank = (uint8_t)rank;
    style->quantization = bytes[0] & 31;
    style->guard_bits = bytes[0] >> 5;
    int32_t size = style->quantization ? 2 : 1;
    style->steps = (uint8_t)jpeg2000_least((count - 1) / size, JPEG2000_BANDS);
    for (int32_t k = 0; k < style->steps; k++)
        style->step[k] = (uint16_t)(size == 2 ? jpeg2000_u16(bytes + 1 + 2 * k) : (uint32_t)bytes[1 + k] >> 3 << 11);
    return style->quantization == 1 && !style->steps;
}

/* Read POC: the segment after its length. A tile's changes replace those of the main header. */
static int jpeg2000_read_changes(const uint8_t *bytes, int64_t count, int32_t components,
                                 jpeg2000_parameters *parameters, int32_t rank) {
    if (rank > parameters->changes_rank) parameters->changes = 0;
    parameters->changes_rank = rank;
    for (; count >= 7; bytes += 7, count -= 7) {
        if (parameters->changes == JPEG2000_CHANGES || bytes[6] > 4) return 1;
        jpeg2000_progression *change = parameters->change + parameters->changes++;
        change->first_resolution = bytes[0];
        change->first_component = bytes[1];
        change->layers = (int32_t)jpeg2000_least(jpeg2000_u16(bytes + 2), parameters->layers);
        change->last_resolution = (int32_t)jpeg2000_least(bytes[4], JPEG2000_LEVELS + 1);
        change->last_component = (int32_t)jpeg2000_least(bytes[5] ? bytes[5] : 256, components);
        change->order = bytes[6];
    }
    return count != 0;
}

/* Read one marker segment: `count` bytes after its length. */
static int jpeg2000_read_segment(uint32_t marker, const uint8_t *bytes, int64_t count, int32_t components,
                                 jpeg2000_parameters *parameters, int32_t rank) {
    switch (marker) {
    case 0xFF52: return jpeg2000_read_coding(bytes, count, components, parameters, rank);
    case 0xFF53:
        if (count < 2 || bytes[0] >= components) return 1;
        return jpeg2000_read_style(bytes + 2, count - 2, bytes[1] & 1, parameters->component + bytes[0], rank + 1);
    case 0xFF5C:
        for (int32_t c = 0; c < components; c++)
            if (jpeg2000_read_steps(bytes, count, parameters->component + c, rank)) return 1;
        return 0;
    case 0xFF5D:
        if (count < 1 || bytes[0] >= components) return 1;
        return jpeg2000_read_steps(bytes + 1, count - 1, parameters->component + bytes[0], rank + 1);
    case 0xFF5E:
        if (count < 3 || bytes[0] >= components || bytes[1] || bytes[2] > JPEG2000_BIT_PLANES) return 1;
        parameters->component[bytes[0]].shift = bytes[2];
        return 0;
    case 0xFF5F: return jpeg2000_read_changes(bytes, count, components, parameters, rank);
    case 0xFF55: /* TLM */
    case 0xFF57: /* PLM */
    case 0xFF58: /* PLT */
    case 0xFF63: /* CRG */
    case 0xFF64: /* COM */ return 0;
    default: return 1; /* PPM, PPT and the markers of other parts of the standard change what the packets mean */
    }
}

/* Read the marker segments from `at` to the marker `last`. Returns where that one is, or -1. */
static int64_t jpeg2000_read_header(const uint8_t *bytes, int64_t at, int64_t end, uint32_t last, int32_t components,
                                    jpeg2000_parameters *parameters, int32_t rank) {
    while (end - at >= 2 && jpeg2000_u16(bytes + at) != last) {
        uint32_t marker = jpeg2000_u16(bytes + at);
        if (end - at < 4) return -1;
        int64_t length = jpeg2000_u16(bytes + at + 2);
        if (length < 2 || length > end - at - 2) return -1;
        if (jpeg2000_read_segment(marker, bytes + at + 4, length - 2, components, parameters, rank)) return -1;
        at += 2 + length;
    }
    return end - at >= 2 ? at : -1;
}
