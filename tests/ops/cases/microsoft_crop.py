"""Crops of images."""

from irc.ops.crop_and_resize import CropAndResize
from tests.ops.cases import ALONE, Case, Spec

BOXES = (0.0, 0.0, 1.0, 1.0, 0.1, 0.2, 0.7, 0.9, 0.9, 0.1, 0.2, 0.8, -0.5, 0.25, 1.25, 0.5)


def crop(
    op: CropAndResize,
    *size: int,
    kind: str = "f32",
    boxes: tuple[float, ...] = BOXES,
    images: tuple[int, ...] = (0, 1, 1, 0),
    note: str = "",
    const: bool = True,
) -> Case:
    rois = Spec(kind, (len(boxes) // 4, 4), values=boxes)
    which = Spec("i32", (len(images),), values=images)
    limit = 1e-5 if kind != "f16" else 5e-3
    return Case(op, (Spec(kind, (2, 3, 7, 9)), rois, which, Spec("i32", (2,), values=size, const=const)), limit, note)


CASES = [
    crop(CropAndResize(), 4, 5),
    crop(CropAndResize(extrapolation_value=2.5), 3, 1),
    crop(CropAndResize(mode="nearest"), 4, 5),
    crop(CropAndResize(), 1, 1),
    crop(CropAndResize(), 10, 12, const=False),
    crop(CropAndResize(), 4, 5, kind="f64", note=ALONE),
    crop(CropAndResize(), 4, 5, kind="f16", note=ALONE),
    crop(CropAndResize(), 4, 5, boxes=(float("nan"),) * 4 + (1e30,) * 4, images=(0, 1), note=ALONE),
    crop(CropAndResize(), 4, 5, images=(0, -1, 2, 1), note=ALONE),
]
