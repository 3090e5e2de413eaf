"""Decoding of image files: ImageDecoder.

In C, `irc.layout.images` puts decoders of its own in its place (docs/adr/0024-image-decoders.md).
Source: ONNX ImageDecoder.
"""

from __future__ import annotations

from io import BytesIO

import numpy as np

from irc.ir.dim import Dim
from irc.ir.graph import Value
from irc.ir.types import TensorType, u8
from irc.opdef.base import Array, Op, op
from irc.opdef.codecs import Enum
from irc.opdef.forms import Form
from irc.opdef.signature import Sig

FORMATS = ("BMP", "JPEG", "JPEG2000", "PNG", "PPM", "TIFF", "WEBP")
"""What an encoded image may be, as Pillow calls it."""


@op
class ImageDecoder(Op):
    """The pixels [height, width, channels] of an image file, as Pillow reads it.

    Any image first becomes one of three channels of 8 bits, as by Pillow's `convert("RGB")`: greys are repeated,
    colours looked up in a palette, CMYK is converted, an alpha channel is left out. `pixel_format` is the order of
    these, or "Grayscale": one channel, 0.299 R + 0.587 G + 0.114 B. Only the first of several images counts, and no
    colour profile is applied. A damaged file is an error, not the empty matrix that the specification speaks of.
    """

    pixel_format: str = "RGB"
    sig = Sig("encoded: u8[1] -> image: u8")

    def infer(self, encoded: Value) -> TensorType:
        channels = 1 if self.pixel_format == "Grayscale" else 3
        return TensorType.of(u8, [Dim.fresh("height"), Dim.fresh("width"), channels])

    def reference(self, encoded: Array) -> Array:
        from PIL import Image

        image = Image.open(BytesIO(encoded.tobytes()), formats=FORMATS).convert("RGB")
        if self.pixel_format == "Grayscale":
            return np.asarray(image.convert("L"))[:, :, None]
        pixels = np.asarray(image)
        return pixels[:, :, ::-1] if self.pixel_format == "BGR" else pixels

    onnx = (Form("ImageDecoder", 20, attrs={"pixel_format": Enum(("RGB", "BGR", "Grayscale"), "RGB")}),)
