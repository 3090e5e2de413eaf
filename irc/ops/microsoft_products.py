"""Products of ONNX Runtime's own: weights of few bits, fused transpositions, scales and activations.

Source: ONNX Runtime, contributed operators.
"""

from __future__ import annotations

import math

from irc.diagnostics import require
from irc.diagnostics.codes import operation as codes, shape as shape_codes
from irc.ir.dim import Dim
from irc.ir.graph import Value
from irc.ir.relation import same
from irc.ir.types import FLOATS, FLOATS_BF16, bf16, f16, f32, u8
from irc.opdef.base import Op, op
from irc.opdef.builder import Builder
from irc.opdef.codecs import Bool, Enum, Float, Floats, Int, Ints
from irc.opdef.composed import composed, contributed
from irc.opdef.conversions import as_type
from irc.opdef.forms import Attributes, Results
from irc.opdef.signature import Sig
from irc.opdef.window import ONNX_WINDOW
from irc.ops.arithmetic import WIDE_INTS
from irc.ops.conv import CONV, Convolution, check_kernel_shape
from irc.ops.layout import channels_last, channels_second, reshaped
from irc.ops.pool import KERNEL, ONNX_ROUNDING, MaxPool
from irc.ops.quantize import BYTES

SMALL_FLOATS = frozenset({f32, f16, bf16})
ACTIVATIONS = [
    "Relu",
    "Sigmoid",
    "Tanh",
    "LeakyRelu",
    "Clip",
    "HardSigmoid",
    "Elu",
    "Celu",
    "Selu",
    "Softplus",
    "Softsign",
    "ThresholdedRelu",
]
ALPHA = {"LeakyRelu": 0.01, "HardSigmoid": 0.2, "Elu": 1.0, "Celu": 1.0, "Selu": 1.67326, "ThresholdedRelu": 1.0}
"""What the first number of an activation is where it is absent."""
SECOND = {"HardSigmoid": 0.5, "Selu": 1.0507}
"""What the second one is."""


def activated(b: Builder, y: Value, kind: str, numbers: tuple[float | None, ...]) -> Value:
    """The activation of that name, with its numbers (None or missing: the usual ones)."""
    if not kind:
        return y
    first, second = (*numbers, None, None)[:2]
    alpha = ALPHA.get(kind, 0.0) if first is None else first
    beta = SECOND.get(kind, 0.0) if second is None else second
    if kind in ("LeakyRelu", "Elu", "Celu", "ThresholdedRelu"):
        return b.operation(kind)(y, alpha=alpha)
    if kind in ("HardSigmoid", "Selu"):
        return b.operation(kind)(y, b.like(alpha, y), b.like(beta, y))
    if kind == "Clip":
        ends = (None if n is None else b.like(n, y) for n in (first, second))
        return b.Clip(y, *ends)
    return b.operation(kind)(y)


def unpacked(b: Builder, bytes: Value, bits: int) -> Value:
    """Whole numbers of `bits` bits, packed from the low bit up along the last axis, one by one, as u8."""
    if bits == 8:
        return bytes
    each = 8 // bits
    parts: list[Value] = []
    for k in range(each):
        shifted = b.BitShift(bytes, b.const(k * bits, u8), direction="RIGHT") if k else bytes
        parts.append(b.Unsqueeze(b.BitwiseAnd(shifted, b.const((1 << bits) - 1, u8)), [-1]))
    return reshaped(b, b.Concat(*parts, axis=-1), [*bytes.shape[:-1], bytes.shape[-1] * each])


def first_of(b: Builder, x: Value, count: Dim | int) -> Value:
    """The first `count` elements of the last axis."""
    return x if x.shape[-1] == count else b.Slice(x, [0], b.dims([count]), [-1])


@op
class MatMulNBits(Op):
    """A · Bᵀ + bias, with B of N rows and K columns in whole numbers of `bits` bits.

    `block_size` of them share a scale and a zero point (half the range where it is absent), or those that `g_idx` gives
    the same number.
    `accuracy_level` is the least that is asked for: products are always those of floats.
    """

    K: int
    N: int
    block_size: int
    bits: int = 4
    accuracy_level: int = 0
    weight_prepacked: int = 0
    sig = Sig(
        "A: T1[>=1], B: u8, scales: T1[1..2], zero_points?: T3[1..2], g_idx?: i32[1], bias?: T1[1] -> Y: T1",
        T1=SMALL_FLOATS,
        T3=SMALL_FLOATS | {u8},
    )

    def decompose(
        self,
        b: Builder,
        A: Value,
        B: Value,
        scales: Value,
        zero_points: Value | None = None,
        g_idx: Value | None = None,
        bias: Value | None = None,
    ) -> Value:
        facts = {"op": self.name, "attribute": "bits", "value": self.bits, "expected": "2, 4 or 8"}
        require(self.bits in (2, 4, 8), codes.ATTRIBUTE_RANGE, **facts)
        facts = {"op": self.name, "attribute": "weight_prepacked", "value": self.weight_prepacked, "expected": 0}
        require(self.weight_prepacked == 0, codes.ATTRIBUTE_RANGE, **facts)
        agree = same(A.shape[-1], self.K)
        require(agree, shape_codes.SIZES_DIFFER, op=self.name, what="K and columns of A", a=self.K, b=A.tensor)
        if any(d == 0 for d in B.shape):  # a projection that is left out
            y = b.Expand(b.like(0.0, A), b.dims([*A.shape[:-1], Dim.of(self.N)]))
        else:
            weights = as_type(b, self.weights(b, B, scales, zero_points, g_idx), A.dtype)
            y = b.MatMul(A, weights, transpose_b=True)
        return y if bias is None else b.Add(y, bias)

    def weights(self, b: Builder, B: Value, scales: Value, zero_points: Value | None, g_idx: Value | None) -> Value:
        """B as floats [N, K], in f32."""
        blocks = -(-self.K // self.block_size)
        size = self.block_size * self.bits // 8
        facts = {"op": self.name, "what": "B and N, the blocks of K and their bytes", "a": B.tensor}
        shape = self.N, blocks, size
        require(same(B.tensor.elements(), math.prod(shape)), shape_codes.SIZES_DIFFER, **facts, b=shape)
        whole = unpacked(b, reshaped(b, B, [self.N, blocks * size]), self.bits)
        scale = as_type(b, self.per_block(b, scales, blocks), f32)
        if zero_points is None:
            zero = b.const(float(1 << (self.bits - 1)), f32)
        elif zero_points.dtype == u8:
            row = -(-blocks * self.bits // 8)
            packed = self.per_block(b, zero_points, row)
            zero = as_type(b, first_of(b, unpacked(b, packed, self.bits), blocks), f32)
        else:
            zero = as_type(b, self.per_block(b, zero_points, blocks), f32)
        # blocks are an axis of their own: scales of each number would be as large as B in floats, too large to fold
        blocked = g_idx is None
        whole = reshaped(b, whole, [self.N, blocks, self.block_size]) if blocked else first_of(b, whole, self.K)
        middle, unit = (part if not part.rank else self.per_number(b, part, g_idx) for part in (zero, scale))
        made = b.Mul(b.Sub(as_type(b, whole, f32), middle), unit)
        return first_of(b, reshaped(b, made, [self.N, blocks * self.block_size]), self.K) if blocked else made

    def per_block(self, b: Builder, part: Value, columns: int) -> Value:
        """A vector that older files have, as a matrix of N rows."""
        facts = {"op": self.name, "what": "scales or zero points and blocks of B", "a": part.tensor}
        require(same(part.tensor.elements(), self.N * columns), shape_codes.SIZES_DIFFER, **facts, b=self.N * columns)
        return reshaped(b, part, [self.N, columns])

    def per_number(self, b: Builder, part: Value, g_idx: Value | None) -> Value:
        """[N, blocks] → [N, blocks, 1], or [N, K] where each number says which is its own."""
        if g_idx is None:
            return b.Unsqueeze(part, [2])
        return b.Gather(part, first_of(b, g_idx, self.K), b.const(1))

    onnx = (
        contributed(
            "MatMulNBits",
            {
                "K": Int(),
                "N": Int(),
                "block_size": Int(lo=1),
                "bits": Int(4),
                "accuracy_level": Int(0),
                "weight_prepacked": Int(0),
            },
            {"T1": SMALL_FLOATS, "T3": SMALL_FLOATS | {u8}},
        ),
    )


@op
class FusedMatMul(Op):
    """alpha · A' · B', where ' is an optional transpose; transBatch: the rows stand in front of the batch axes."""

    alpha: float = 1.0
    transA: bool = False
    transB: bool = False
    transBatchA: bool = False
    transBatchB: bool = False
    sig = Sig("A: T[>=1], B: T[>=1] -> Y: T", T=FLOATS_BF16)

    def decompose(self, b: Builder, A: Value, B: Value) -> Value:
        left, right = self.batched(b, A, self.transBatchA), self.batched(b, B, self.transBatchB)
        turn = self.transA and len(A.shape) > 1, self.transB and len(B.shape) > 1
        y = b.MatMul(left, right, transpose_a=turn[0], transpose_b=turn[1])
        return y if self.alpha == 1.0 else b.Mul(y, b.like(self.alpha, y))

    def batched(self, b: Builder, x: Value, asked: bool) -> Value:
        """The operand with its batch axes in front."""
        rank = len(x.shape)
        return b.Transpose(x, [*range(1, rank - 1), 0, rank - 1]) if asked and rank > 2 else x

    onnx = (
        contributed(
            "FusedMatMul",
            {
                "alpha": Float(1.0),
                "transA": Bool(False),
                "transB": Bool(False),
                "transBatchA": Bool(False),
                "transBatchB": Bool(False),
            },
            FLOATS_BF16,
        ),
    )


@op
class FusedGemm(Op):
    """Gemm with an activation behind it."""

    alpha: float = 1.0
    beta: float = 1.0
    transA: int = 0
    transB: int = 0
    activation: str = ""
    activation_alpha: float | None = None
    activation_beta: float | None = None
    activation_gamma: float | None = None
    sig = Sig("A: T[2], B: T[2], C?: T[0..2] -> Y: T", T=FLOATS | WIDE_INTS)

    def decompose(self, b: Builder, A: Value, B: Value, C: Value | None = None) -> Value:
        y = b.Gemm(A, B, C, alpha=self.alpha, beta=self.beta, transA=self.transA, transB=self.transB)
        second = self.activation_gamma if self.activation == "Selu" else self.activation_beta
        return activated(b, y, self.activation, (self.activation_alpha, second))

    onnx = (
        contributed(
            "FusedGemm",
            {
                "alpha": Float(1.0),
                "beta": Float(1.0),
                "transA": Int(0),
                "transB": Int(0),
                "activation": Enum(ACTIVATIONS, ""),
                "activation_alpha": Float(None),
                "activation_beta": Float(None),
                "activation_gamma": Float(None),
            },
            FLOATS | WIDE_INTS,
        ),
    )


def read_fused_conv(b: Builder, a: Attributes, *operands: Value | None) -> Results:
    assert operands[1] is not None
    check_kernel_shape("FusedConv", a, operands[1])
    return composed("FusedConv")(b, a, *operands)


@op
class FusedConv(Convolution):
    """Conv, plus Z, with an activation behind it."""

    group: int = 1
    activation: str = ""
    activation_params: tuple[float, ...] = ()
    sig = Sig("X: T[r>=3], W: T[r], B?: T[1], Z?: T[r] -> Y: T", T=FLOATS)

    def decompose(self, b: Builder, X: Value, W: Value, B: Value | None = None, Z: Value | None = None) -> Value:
        fields = {k: v for k, v in self.attributes().items() if not k.startswith("activation")}
        y = b.Conv(X, W, B, **fields)
        return activated(b, y if Z is None else b.Add(y, Z), self.activation, self.activation_params)

    onnx = (
        contributed(
            "FusedConv",
            {**CONV, "activation": Enum(ACTIVATIONS, ""), "activation_params": Floats(())},
            FLOATS,
            read_fused_conv,
        ),
    )


def read_nhwc_conv(b: Builder, a: Attributes, *operands: Value | None) -> Results:
    assert operands[1] is not None
    check_kernel_shape("NhwcConv", a, operands[1])
    return composed("NhwcConv")(b, a, *operands)


@op
class NhwcConv(Convolution):
    """Conv of an operand with the channels last, as the result has them; the weights are those of Conv."""

    group: int = 1
    sig = Sig("X: T[r>=3], W: T[r], B?: T[1] -> Y: T", T=FLOATS)

    def decompose(self, b: Builder, X: Value, W: Value, B: Value | None = None) -> Value:
        return channels_last(b, b.Conv(channels_second(b, X), W, B, **self.attributes()))

    onnx = (contributed("NhwcConv", CONV, FLOATS, read_nhwc_conv),)


@op
class NhwcMaxPool(Op):
    """MaxPool of whole numbers with the channels last."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...] = ()
    dilations: tuple[int, ...] = ()
    pads_begin: tuple[int, ...] = ()
    pads_end: tuple[int, ...] = ()
    auto_pad: str = "explicit"
    rounding: str = "floor"
    sig = Sig("x: T[>=3] -> y: T", T=BYTES)

    def decompose(self, b: Builder, x: Value) -> Value:
        largest, _ = b.add_all(MaxPool(**self.attributes()), channels_second(b, x))
        return channels_last(b, largest)

    onnx = (
        contributed(
            "NhwcMaxPool", {**ONNX_WINDOW, **KERNEL, "dilations": Ints((), lo=1), "ceil_mode": ONNX_ROUNDING}, BYTES
        ),
    )
