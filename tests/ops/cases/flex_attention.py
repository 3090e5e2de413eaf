"""FlexAttention without graphs between its steps; tests/border/test_flex_attention.py has those."""

from irc.ir.types import f16, f32, f64
from irc.ops.flex_attention import FlexAttention
from tests.ops.cases import Case, Spec


def operands(dtype: str, heads: tuple[int, int] = (3, 3), value_size: int = 8) -> tuple[Spec, Spec, Spec]:
    """Queries, keys and values."""
    own = Spec(dtype, (2, heads[1], 6, 8)), Spec(dtype, (2, heads[1], 6, value_size))
    return Spec(dtype, (2, heads[0], 4, 8)), *own


CASES = [
    Case(FlexAttention(), operands("f32"), 1e-5),
    Case(FlexAttention(scale=0.3), operands("f32", (4, 2), 5), 1e-5),
    Case(FlexAttention(softmax_precision=f64), operands("f32", (4, 1)), 1e-5),
    Case(FlexAttention(), operands("f64"), 1e-9),
    Case(FlexAttention(), operands("f16"), 4e-3),
    Case(FlexAttention(softmax_precision=f16), operands("f16"), 4e-3),
    Case(FlexAttention(softmax_precision=f32), operands("bf16"), 3e-2),
]
