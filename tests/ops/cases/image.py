"""Images in files: the formats that are decoded, and the orders of channels."""

import numpy as np

from irc.ops.image import ImageDecoder
from tests.ops.cases import Case, Spec
from tests.support.images import encoded, image

RGB, GREY = image(5, 9), image(4, 3, channels=1)[:, :, 0]


def file(data: bytes) -> Spec:
    """An encoded image as an operand."""
    return Spec("u8", (len(data),), values=np.frombuffer(data, np.uint8))


FORMATS = ("PPM", "BMP", "PNG", "TIFF")
CASES = [
    *(Case(ImageDecoder(), (file(encoded(RGB, f)),), note=f) for f in FORMATS),
    *(Case(ImageDecoder(), (file(encoded(GREY, f)),), note=f"{f} grey") for f in FORMATS),
    *(
        Case(ImageDecoder(pixel_format=order), (file(encoded(RGB, "PPM")),), note="pnm")
        for order in ("BGR", "Grayscale")
    ),
    *(
        Case(ImageDecoder(pixel_format=order), (file(encoded(RGB, "JPEG", progressive=True)),), note="jpeg")
        for order in ("RGB", "BGR", "Grayscale")
    ),
    *(Case(ImageDecoder(), (file(encoded(RGB, "JPEG", mode)),), note=f"jpeg {mode}") for mode in ("L", "CMYK")),
    *(
        Case(ImageDecoder(), (file(encoded(RGB, "WEBP", lossless=lossless)),), note=f"webp lossless={lossless}")
        for lossless in (False, True)
    ),
]
