"""MulticlassNms and MatrixNms: orders, limits of a class and of an image, the background, boxes of each class."""

from irc.ir.types import i32
from irc.ops.class_boxes import MatrixNms, MulticlassNms
from tests.ops.cases import Case, Spec


def boxes(images: int, count: int, dtype: str = "f32") -> Spec:
    """Boxes [x1, y1, x2, y2] near each other, of which many overlap."""
    places = [[(7 * k + 3 * i) % 5 / 4, (3 * k + i) % 4 / 4] for i in range(images) for k in range(count)]
    return Spec(dtype, (images, count, 4), values=[[x, y, x + 1 + k % 3 / 8, y + 1] for k, (x, y) in enumerate(places)])


IMAGES = (boxes(2, 7), Spec("f32", (2, 3, 7), 0, 1))
PIXELS = (Spec("f32", (2, 7, 4), 0, 9), Spec("f32", (2, 3, 7), 0, 1))
OF_CLASSES = (boxes(3, 7), Spec("f32", (3, 7), 0, 1), Spec("i64", (2,), values=[4, 3]))

CASES = [
    Case(MulticlassNms(iou_threshold=0.4, score_threshold=0.1), IMAGES),
    Case(MulticlassNms(iou_threshold=0.4, order="classid", nms_top_k=3, output_type=i32), IMAGES),
    Case(MulticlassNms(iou_threshold=0.4, order="score", keep_top_k=4, across=True), IMAGES),
    Case(MulticlassNms(iou_threshold=0.7, order="classid", across=True, background_class=1, keep_top_k=5), IMAGES),
    Case(MulticlassNms(iou_threshold=0.3, score_threshold=0.5, normalized=False), PIXELS, note="boxes upside down"),
    Case(MulticlassNms(iou_threshold=0.9, nms_eta=0.7), IMAGES),
    Case(MulticlassNms(iou_threshold=0.4, order="score", nms_top_k=2), OF_CLASSES),
    Case(MulticlassNms(score_threshold=2), IMAGES, note="nothing is good enough"),
    Case(MulticlassNms(iou_threshold=0.4), (boxes(2, 5, "f16"), Spec("f16", (2, 3, 5), 0, 1))),
    Case(MatrixNms(score_threshold=0.1), IMAGES, rtol=1e-5),
    Case(MatrixNms(decay_function="gaussian", gaussian_sigma=1.5, nms_top_k=4, output_type=i32), IMAGES, rtol=1e-5),
    Case(MatrixNms(order="classid", across=True, keep_top_k=4, post_threshold=0.2), IMAGES, rtol=1e-5),
    Case(MatrixNms(order="score", background_class=0, normalized=False), PIXELS, rtol=1e-4, note="upside down"),
    Case(MatrixNms(score_threshold=2), IMAGES, note="nothing is good enough"),
]
