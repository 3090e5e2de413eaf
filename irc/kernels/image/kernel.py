"""`ImageKernel`: decodes a file of any of the formats, or reads its header."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import numpy as np

from irc.arrays import Array
from irc.ir.dim import Dim
from irc.kernels.core.base import Call, Kernel, Sizes, call
from irc.kernels.core.text import Part, Piece, fill
from irc.kernels.image.formats import FORMATS, LARGEST, ImageFormat

PROLOGUE = Piece("IRC_IMAGE", "#include <stdint.h>\n#include <string.h>\n")
FUNCTION = """
/* A format: the size of an image by its header, bytes of scratch memory that decoding takes, decoding to RGB. */
typedef struct irc_image_format {
    int (*size)(const uint8_t *bytes, int64_t count, int64_t *height, int64_t *width);
    int64_t (*scratch)(int64_t height, int64_t width, int64_t count);
    int (*decode)(const uint8_t *bytes, int64_t count, uint8_t *rgb, int64_t height, int64_t width, uint8_t *scratch);
} irc_image_format;

static int irc_image_has(const uint8_t *bytes, int64_t count, int64_t at, const char *start, int64_t size) {
    return count >= at + size && !memcmp(bytes + at, start, (size_t)size);
}
/* Finds the format of a file by its first bytes.  Returns 0, or 1 if it is none that is known. */
static int irc_image_detect(const uint8_t *bytes, int64_t count, irc_image_format *format) {
$cases    else return 1;
    return 0;
}
/* Writes to `header` height and width of the image, and how many rows have been decoded: all, or 0 if the file is
 * damaged, as height and width are then if its header is. Without memory for pixels only the header is read. */
void $S($parameters) {
    irc_image_format format;
    int64_t height, width;
    (void)pool;
    g->header[0] = g->header[1] = g->header[2] = 0;
    if (irc_image_detect(g->bytes, g->count, &format) || format.size(g->bytes, g->count, &height, &width)) return;
    if (height < 1 || width < 1 || height > $largest / width) return;
    g->header[0] = height;
    g->header[1] = width;
    if (!g->rgb || height != g->height || width != g->width) return;
    if (format.scratch(height, width, g->count) > g->room) return;
    if (!format.decode(g->bytes, g->count, g->rgb, height, width, g->scratch)) g->header[2] = height;
}
"""
ARGUMENTS = (
    ("bytes", "const uint8_t *"),
    ("header", "int64_t *"),
    ("rgb", "uint8_t *"),
    ("scratch", "uint8_t *"),
    ("count", "int64_t "),
    ("height", "int64_t "),
    ("width", "int64_t "),
    ("room", "int64_t "),
)


def scratch_bytes(height: Dim, width: Dim, count: Dim, formats: Sequence[ImageFormat] = FORMATS) -> Dim:
    """Count the bytes of scratch memory that any format takes."""
    most = Dim.of(1)
    for each in formats:
        most = most.maximum(each.scratch(height, width, count))
    return most


@dataclass(frozen=True)
class ImageKernel(Kernel[Any]):
    """The function over image files; `header_only`: without memory for pixels."""

    header_only: bool = False
    formats: tuple[ImageFormat, ...] = FORMATS

    @property
    def label(self) -> str:
        return "image"

    @property
    def symbol(self) -> str:
        return "irc_decode_image"

    @property
    def summary(self) -> str:
        return f"Images: decodes {', '.join(f.pillow for f in self.formats)}, as Pillow does."

    @property
    def arguments(self) -> tuple[tuple[str, str], ...]:
        return ARGUMENTS

    @property
    def pointers(self) -> tuple[tuple[str, str], ...]:
        return ARGUMENTS[:2] if self.header_only else ARGUMENTS[:4]

    @property
    def sizes(self) -> tuple[str, ...]:
        return ("count",) if self.header_only else ("count", "height", "width", "room")

    def call(self, values: Sequence[str], pool: str = "pool") -> Call:
        """Print the call; what a call for the header leaves out is 0."""
        names = [*(name for name, _ in self.pointers), *self.sizes]
        return call(self.symbol, pool, dict(zip(names, values, strict=True)))

    def flops(self, sizes: Sizes) -> Dim:
        return Dim.of(0)

    def parts(self) -> list[Part]:
        cases = ""
        for each in self.formats:
            functions = ", ".join(f"irc_{each.name}_{what}" for what in ("size", "scratch", "decode"))
            test = f"    {'else ' if cases else ''}if ({each.detection()})"
            cases += f"{test}\n        *format = (irc_image_format){{{functions}}};\n"
        function = fill(FUNCTION, S=self.symbol, cases=cases, largest=LARGEST, **self.interface)
        return [PROLOGUE, *(f.pieces for f in self.formats), function]

    def compute(self, reads: Sequence[Array], writes: Sequence[Array], sizes: Mapping[str, int]) -> None:
        """Decode by Pillow."""
        from PIL import Image

        image = Image.open(BytesIO(reads[0][: sizes["count"]].tobytes()), formats=[f.pillow for f in self.formats])
        writes[0][:3] = image.height, image.width, 0
        if not self.header_only:
            pixels = np.asarray(image.convert("RGB")).reshape(-1)
            writes[1][: pixels.size] = pixels
            writes[0][2] = image.height
