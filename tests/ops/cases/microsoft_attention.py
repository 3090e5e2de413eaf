"""Attention of com.microsoft."""

from irc.opdef.base import Op
from irc.ops.microsoft_attention import (
    GroupQueryAttention,
    IndexedRotaryEmbedding,
    MultiHeadAttention,
    ProjectedAttention,
    QAttention,
)
from tests.ops.cases import ALONE, Case, Spec

BATCH, STEPS, HEADS, SIZE, PAST = 2, 5, 3, 4, 3
WIDTH = HEADS * SIZE


def f32(*shape: int) -> Spec:
    return Spec("f32", shape, -1, 1)


def ints(*shape: int, values: object) -> Spec:
    return Spec("i32", shape, values=values)


MASKS = {
    "": None,
    "ends": ints(BATCH, values=(3, 5)),
    "starts": ints(BATCH * 2, values=(4, 5, 1, 0)),
    "matrix": ints(BATCH, STEPS, values=(1, 1, 1, 0, 0, 0, 1, 1, 1, 1)),
    "cube": Spec("i32", (BATCH, STEPS, STEPS), 0, 1),
    "longer": Spec("i32", (BATCH, PAST + STEPS), values=(1,) * 5 + (0,) * 3 + (0, 1) + (1,) * 6),
}
CACHE = f32(2, BATCH, HEADS, PAST, SIZE)
SCORES = f32(BATCH, HEADS, STEPS, STEPS)


def case(op: Op, *operands: Spec | None, rtol: float = 2e-5, note: str = "") -> Case:
    given = list(operands)
    while given[-1] is None:
        given.pop()
    return Case(op, tuple(given), rtol, note)


def projected(mask: str, past: bool = False, bias: Spec | None = None, note: str = "", **fields: object) -> Case:
    op = ProjectedAttention(num_heads=HEADS, **fields)  # type: ignore[arg-type]
    sizes = fields.get("qkv_hidden_sizes") or (WIDTH,) * 3
    total = sum(sizes)  # type: ignore[arg-type]
    operands = [f32(BATCH, STEPS, 7), f32(7, total), f32(total), MASKS[mask], CACHE if past else None, bias]
    return case(op, *operands, note=note)


def quantized(mask: str, past: bool = False, columns: bool = False, **fields: object) -> Case:
    op = QAttention(num_heads=HEADS, **fields)  # type: ignore[arg-type]
    x = Spec("u8", (BATCH, STEPS, 7), 0, 255), Spec("i8", (7, 3 * WIDTH), -128, 127, const=True)
    per = (3 * WIDTH,) if columns else ()
    scales = Spec("f32", (), values=0.02), Spec("f32", per, 0.005, 0.01)
    zeros = Spec("u8", (), values=128), Spec("i8", per, values=[1] * (3 * WIDTH) if columns else 1)
    operands = [*x, f32(3 * WIDTH), *scales, MASKS[mask], *zeros, CACHE if past else None]
    return case(op, *operands, rtol=5e-5)


def several(*more: Spec | None, note: str = "", **fields: object) -> Case:
    op = MultiHeadAttention(num_heads=HEADS, **fields)  # type: ignore[arg-type]
    return case(op, *[f32(BATCH, STEPS, WIDTH)] * 3, *more, note=note)


def grouped(
    past: int,
    steps: int,
    lengths: tuple[int, int],
    packed: bool = False,
    turned: bool = False,
    note: str = "",
    **fields: object,
) -> Case:
    heads, own, size = 4, 2, 16
    op = GroupQueryAttention(num_heads=heads, kv_num_heads=own, do_rotary=turned, **fields)  # type: ignore[arg-type]
    if packed:
        x = [f32(BATCH, steps, (heads + 2 * own) * size), None, None]
    else:
        x = [f32(BATCH, steps, heads * size), *[f32(BATCH, steps, own * size)] * 2]
    caches = [f32(BATCH, own, past, size)] * 2 if past else [None] * 2
    sizes = ints(BATCH, values=[n - 1 for n in lengths]), Spec("i32", (), values=past + steps, const=True)
    angles = [f32(16, size // 2)] * 2 if turned else []
    return case(op, *x, *caches, *sizes, *angles, note=note)


ROTARY = f32(9, SIZE // 2), f32(9, SIZE // 2)
PLACES = Spec("i64", (BATCH, STEPS), 0, 8)
CASES = [
    *(projected(mask) for mask in ("", "ends", "starts", "matrix", "cube")),
    projected("", unidirectional=True),
    projected("matrix", unidirectional=True, scale=0.5),
    projected("ends", mask_filter_value=-500.0),
    projected("", past=True, unidirectional=True),
    projected("longer", past=True),
    projected("", bias=SCORES),
    projected("", qkv_hidden_sizes=(WIDTH, WIDTH, 2 * WIDTH), note=ALONE),
    *(quantized(mask) for mask in ("", "ends", "matrix")),
    quantized("", past=True, unidirectional=True),
    quantized("", columns=True),
    several(),
    several(f32(3 * WIDTH)),
    several(None, MASKS["ends"]),
    several(None, MASKS["matrix"]),
    several(None, MASKS["cube"]),
    several(None, None, SCORES, unidirectional=True),
    several(None, None, f32(1, 1, STEPS, STEPS), scale=0.25),
    several(None, None, None, *[f32(BATCH, HEADS, PAST, SIZE)] * 2),
    several(f32(3 * WIDTH), MASKS["longer"], None, *[f32(BATCH, HEADS, PAST, SIZE)] * 2, unidirectional=True),
    case(MultiHeadAttention(num_heads=HEADS), f32(BATCH, STEPS, WIDTH), *[f32(BATCH, HEADS, 6, SIZE)] * 2),
    case(MultiHeadAttention(num_heads=HEADS), f32(BATCH, STEPS, WIDTH), f32(BATCH, 6, HEADS, 2, SIZE), note=ALONE),
    case(MultiHeadAttention(num_heads=HEADS), f32(BATCH, STEPS, HEADS, 3, SIZE), note=ALONE),
    *(
        case(IndexedRotaryEmbedding(**fields), x, places, *ROTARY, rtol=1e-6)
        for fields, x in (
            ({}, f32(BATCH, STEPS, WIDTH)),
            ({}, f32(BATCH, HEADS, STEPS, SIZE)),
            ({"interleaved": True}, f32(BATCH, STEPS, WIDTH)),
            ({"num_heads": 2, "rotary_embedding_dim": SIZE}, f32(BATCH, STEPS, WIDTH)),
        )
        for places in (PLACES, Spec("i64", (1,), values=2))
    ),
    grouped(0, STEPS, (STEPS, STEPS)),
    grouped(0, STEPS, (STEPS, STEPS), packed=True, turned=True),
    grouped(0, STEPS, (STEPS, STEPS), turned=True, rotary_interleaved=True),
    grouped(PAST, 1, (PAST + 1, PAST + 1), turned=True),
    grouped(PAST, 1, (PAST + 1, PAST), turned=True, note=ALONE),
    grouped(6, 1, (7, 7), local_window_size=3),
    grouped(0, STEPS, (STEPS, STEPS), softcap=2.0, scale=0.5),
    grouped(PAST, 2, (PAST + 2, PAST + 2), packed=True, note=ALONE),
]
