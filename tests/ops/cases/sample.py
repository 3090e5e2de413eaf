"""GridSample: every mode, padding and meaning of the corners; places far outside and in the middle between two."""

from typing import Any

from irc.ops.grid_sample import GridSample
from tests.ops.cases import Case, Spec

X = Spec("f32", (2, 3, 5, 7))
HALVES = Spec(
    "f32", (1, 1, 8, 2), values=[[-1.0, -0.6], [-0.75, 0.2], [-0.5, 0.6], [0, 1], [9, -9], [0.5, 0], [1, 1], [-1, -1]]
)


def sample(
    mode: str, padding: str = "zeros", align: bool = False, x: Spec = X, grid: Spec | None = None, **fields: Any
) -> Case:
    count = len(x.shape) - 2
    grid = grid or Spec("f32", (x.shape[0], *(4, 6, 3)[:count], count), -1.7, 1.7)
    rtol = 0 if mode == "nearest" else 2e-2 if x.dtype in ("f16", "bf16") else 1e-5
    return Case(GridSample(mode, padding, align, **fields), (x, grid), rtol)


CASES = [
    *(
        sample(m, p, a)
        for m in ("nearest", "linear", "cubic")
        for p in ("zeros", "border", "reflection")
        for a in (False, True)
    ),
    *(
        sample(m, p, a, Spec("f32", (1, 2, 4, 8)), HALVES)
        for m in ("nearest", "linear", "cubic")
        for p in ("zeros", "border", "reflection")
        for a in (False, True)
    ),
    *(sample(m, p, x=Spec("f32", (1, 2, 3, 4, 5))) for m in ("nearest", "linear") for p in ("zeros", "reflection")),
    *(sample(m, "reflection", True, Spec("f32", (1, 2, 1, 4))) for m in ("nearest", "linear", "cubic")),
    *(sample(m, x=Spec(t, (1, 2, 4, 5))) for t in ("f16", "bf16", "f64") for m in ("nearest", "linear")),
    *(sample("nearest", "border", x=Spec(t, (1, 2, 4, 5))) for t in ("i32", "u8", "bool", "i64")),
    sample("linear", grid=Spec("f16", (2, 3, 3, 2), -1.2, 1.2)),
    *(
        sample(m, p, x=Spec("f32", (2, 9, 5, 7)))
        for m, p in (("linear", "zeros"), ("linear", "border"), ("cubic", "zeros"))
    ),
    sample("linear", x=Spec("f32", (1, 8, 2, 3, 4))),
    sample("linear", x=Spec("f64", (2, 11, 4, 5))),
    sample("linear", x=Spec("f32", (1, 9, 10, 12))),  # of more elements than are copied
]
