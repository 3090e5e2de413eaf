"""Products of com.microsoft."""

from irc.ops.microsoft_products import FusedConv, FusedGemm, FusedMatMul, MatMulNBits, NhwcConv, NhwcMaxPool
from tests.ops.cases import ALONE, Case, Spec


def f32(*shape: int, kind: str = "f32") -> Spec:
    return Spec(kind, shape, -1, 1)


def few_bits(
    op: MatMulNBits, *optional: str, kind: str = "f32", const: bool = True, flat: bool = False, note: str = ""
) -> Case:
    """A case of MatMulNBits; z: packed zero points, f: float ones, g: groups of columns, b: a bias."""
    blocks = -(-op.K // op.block_size)
    row = -(-blocks * op.bits // 8)
    specs = {
        "z": Spec("u8", (op.N * row,) if flat else (op.N, row), 0, 255, const=const),
        "f": Spec(kind, (op.N, blocks), 0, (1 << op.bits) - 1, const=const),
        "g": Spec("i32", (op.K,), values=[k * 7 % op.K // op.block_size for k in range(op.K)], const=True),
        "b": Spec(kind, (op.N,), const=const),
    }
    given = [
        f32(2, 3, op.K, kind=kind),
        Spec("u8", (op.N, blocks, op.block_size * op.bits // 8), 0, 255, const=const),
        Spec(kind, (op.N * blocks,) if flat else (op.N, blocks), 0.01, 0.1, const=const),
        *(next((specs[k] for k in choice if k in optional), None) for choice in ("zf", "g", "b")),
    ]
    while given[-1] is None:
        given.pop()
    limit = 0.02 if op.accuracy_level == 4 else {"f32": 3e-5, "f16": 6e-2, "bf16": 0.5}[kind]
    return Case(op, tuple(given), limit, ALONE if kind == "bf16" or (op.bits == 8 and "f" in optional) else note)


CASES = [
    *(
        few_bits(MatMulNBits(K=k, N=6, block_size=16, bits=bits), *optional)
        for bits in (2, 4, 8)
        for k, optional in ((64, ""), (64, "z"), (48, "zb"), (40, "z"), (48, "f"))
    ),
    few_bits(MatMulNBits(K=64, N=6, block_size=32), "z", "b", const=False),
    few_bits(MatMulNBits(K=64, N=6, block_size=32), "z", flat=True),
    few_bits(MatMulNBits(K=64, N=6, block_size=16), "z", "g", note=ALONE),  # which ignores these zero points
    few_bits(MatMulNBits(K=64, N=6, block_size=16), "g", "b"),
    *(few_bits(MatMulNBits(K=64, N=6, block_size=32, accuracy_level=n), "z") for n in (1, 4)),
    *(few_bits(MatMulNBits(K=64, N=6, block_size=32), "z", kind=k) for k in ("f16", "bf16")),
    Case(
        MatMulNBits(K=32, N=5, block_size=32),
        (f32(3, 32), Spec("u8", (5, 0, 16)), f32(5, 1), None, None, f32(5)),
        1e-6,
        ALONE,
    ),
    *(
        Case(op, (f32(*x), f32(*y)), 1e-5)
        for op, x, y in (
            (FusedMatMul(), (3, 4), (4, 5)),
            (FusedMatMul(alpha=0.5, transA=True), (4, 3), (4, 5)),
            (FusedMatMul(alpha=2.0, transA=True, transB=True), (2, 4, 3), (2, 5, 4)),
            (FusedMatMul(transB=True), (2, 3, 4), (5, 4)),
            (FusedMatMul(transBatchA=True), (3, 2, 4), (2, 4, 5)),
            (FusedMatMul(transBatchA=True, transBatchB=True, transB=True), (3, 2, 6, 4), (5, 2, 6, 4)),
            (FusedMatMul(transBatchA=True, transA=True), (4, 2, 3), (2, 4, 5)),
            (FusedMatMul(alpha=3.0), (4,), (4, 5)),
        )
    ),
    Case(FusedMatMul(alpha=0.5), (f32(3, 4, kind="f16"), f32(4, 5, kind="f16")), 1e-2, ALONE),
    *(
        Case(FusedGemm(activation=kind, **numbers), (f32(3, 4), f32(4, 5), f32(5)), 1e-5)
        for kind, numbers in (
            ("Relu", {}),
            ("LeakyRelu", {"activation_alpha": 0.25}),
            ("Tanh", {}),
            ("Sigmoid", {}),
            ("HardSigmoid", {"activation_alpha": 0.25, "activation_beta": 0.5}),
            ("Elu", {"activation_alpha": 0.5}),
            ("Softplus", {}),
            ("Softsign", {}),
            ("ThresholdedRelu", {"activation_alpha": 0.5}),
            ("Selu", {"activation_alpha": 1.5, "activation_gamma": 2.0}),
        )
    ),
    Case(
        FusedGemm(alpha=0.5, beta=2.0, transA=1, transB=1, activation="Relu"), (f32(4, 3), f32(5, 4), f32(3, 5)), 1e-5
    ),
    Case(FusedGemm(transB=1, activation="Relu"), (f32(3, 4), f32(5, 4)), 1e-5),
    *(
        Case(FusedConv(activation=kind, activation_params=numbers), (f32(1, 3, 6, 7), f32(4, 3, 3, 3), f32(4)), 1e-5)
        for kind, numbers in (
            ("Relu", ()),
            ("Sigmoid", ()),
            ("Tanh", ()),
            ("LeakyRelu", (0.25,)),
            ("Clip", (-0.5, 0.75)),
            ("HardSigmoid", (0.25, 0.5)),
        )
    ),
    Case(
        FusedConv(strides=(2, 1), pads_begin=(1, 1), pads_end=(1, 1), group=2, activation="Relu"),
        (f32(2, 4, 6, 7), f32(6, 2, 3, 3), f32(6), f32(2, 6, 3, 7)),
        1e-5,
    ),
    Case(FusedConv(auto_pad="same_upper"), (f32(1, 2, 5, 5), f32(2, 2, 3, 3)), 1e-5),
    Case(FusedConv(activation="Relu"), (f32(1, 3, 9), f32(4, 3, 3), None, f32(1, 4, 7)), 1e-5),
    Case(NhwcConv(strides=(2, 1), group=2), (f32(2, 6, 7, 4), f32(6, 2, 3, 3), f32(6)), 1e-5, ALONE),
    *(
        Case(op, (Spec(kind, (1, 7, 8, 3), -128, 127),))
        for kind in ("i8", "u8")
        for op in (
            NhwcMaxPool(kernel=(2, 2)),
            NhwcMaxPool(kernel=(3, 3), strides=(2, 2), pads_begin=(1, 1), pads_end=(1, 1), rounding="ceil_torch"),
            NhwcMaxPool(kernel=(2, 2), dilations=(2, 1)),
        )
    ),
]
