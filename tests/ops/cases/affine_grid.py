"""AffineGrid: planes and volumes, both meanings of the corners, an axis of one element, sizes of the run."""

from irc.ops.affine_grid import AffineGrid
from tests.ops.cases import Case, Spec

TOLERANCE = {"f32": 1e-5, "f64": 1e-12, "f16": 4e-3, "bf16": 3e-2}


def case(align: bool, size: tuple[int, ...], t: str = "f32", const: bool = True) -> Case:
    axes = len(size) - 2
    operands = (Spec(t, (size[0], axes, axes + 1)), Spec("i64", (len(size),), values=size, const=const))
    return Case(AffineGrid(align_corners=align), operands, TOLERANCE[t], "" if const else "of the run")


CASES = [
    *(
        case(align, size)
        for align in (False, True)
        for size in [(2, 3, 4, 5), (2, 1, 3, 4, 5), (1, 1, 1, 6), (1, 2, 0, 3)]
    ),
    *(case(align, (2, 3, 4, 5), t) for align in (False, True) for t in ("f64", "f16", "bf16")),
    *(case(align, size, const=False) for align in (False, True) for size in [(2, 3, 4, 5), (2, 1, 1, 4, 5)]),
]
