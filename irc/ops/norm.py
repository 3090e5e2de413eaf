"""Normalisations by mean and variance: over batches, channels, trailing axes or groups.

Statistics of narrow floats are computed in f32.  Sources: ONNX operator pages of the same names;
OpenVINO specification, "Normalization" (MVN, BatchNormInference, GroupNormalization).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from irc.diagnostics import require
from irc.diagnostics.codes import operation as codes, shape as shape_codes
from irc.ir.graph import Value
from irc.ir.relation import multiple, same, stretches_to
from irc.ir.types import FLOATS, FLOATS_BF16, INTEGERS, DType, TensorType, bf16, f32, i32, i64
from irc.opdef.base import Array, Op, op
from irc.opdef.builder import Builder
from irc.opdef.codecs import AsInput, Bool, Enum, Float, Ignored, Int, Ints, single
from irc.opdef.forms import PREV, Attributes, Form, Results, write_only
from irc.opdef.precision import narrowed, rounded, wide, widened
from irc.opdef.signature import Sig
from irc.ops.layout import normal_axes, normal_axis, reshaped
from irc.ops.reduce import axes_vector
from irc.ops.softmax import OV_SOFTMAX

EPSILON = single(1e-5)


def into(op: str, v: Value, x: Value) -> None:
    """Demand that a parameter broadcasts to x; Problem IRC3101."""
    shapes = f"{v.tensor} and {x.tensor}"
    require(stretches_to(v.shape, x.shape), shape_codes.NOT_BROADCASTABLE, op=op, shapes=shapes, axis="of x")


def trailing(axis: int, rank: int) -> list[int]:
    """The axes from `axis` to the last."""
    return list(range(axis % rank if rank else 0, rank))


def mean_square(w: Array, axes: int | tuple[int, ...]) -> Array:
    return np.mean(w * w, axis=axes, keepdims=True)


def centred(b: Builder, w: Value, axes: Sequence[int]) -> tuple[Value, Value]:
    """x - mean and the variance over the axes."""
    d = b.Sub(w, b.ReduceMean(w, list(axes)))
    return d, b.ReduceMean(b.Mul(d, d), list(axes))


def inverse_root(b: Builder, variance: Value, epsilon: float) -> Value:
    """1 / sqrt(variance + epsilon)."""
    return b.Reciprocal(b.Sqrt(b.Add(variance, b.const(epsilon, variance.dtype))))


def per_channel(b: Builder, v: Value, rank: int) -> Value:
    """A value per channel, as axis 1 of `rank` axes."""
    return v if rank <= 2 else b.Unsqueeze(v, list(range(1, rank - 1)))


def channelwise(v: Array, rank: int) -> Array:
    return v.reshape((-1,) + (1,) * max(rank - 2, 0))


def scaled(b: Builder, x: Value, scale: Value, bias: Value | None) -> Value:
    y = b.Mul(x, scale)
    return y if bias is None else b.Add(y, bias)


def mvn(b: Builder, x: Value, axes: Sequence[int], epsilon: float) -> Value:
    """Standardised over the axes, epsilon inside the root."""
    return b.MeanVarianceNormalization(x, list(axes), eps=epsilon, eps_mode="inside")


# ------------------------------------------------------------------------- MeanVarianceNormalization
def read_mvn_2(b: Builder, a: Attributes, x: Value) -> Results:
    """MVN of opset 2: `across_channels` chooses the axes where reduction_axes does not."""
    axes = a.reduction_axes or range(1 if a.across_channels else 2, len(x.shape))
    attrs = {"eps": a.eps, "eps_mode": "outside", "normalize_variance": a.normalize_variance}
    return b.MeanVarianceNormalization(x, list(axes), **attrs)


def read_mvn_6(b: Builder, a: Attributes, x: Value, axes: Value) -> Results:
    attrs = {"eps": a.eps, "eps_mode": a.eps_mode, "normalize_variance": a.normalize_variance}
    return b.MeanVarianceNormalization(x, axes_vector(b, axes), **attrs)


@op
class MeanVarianceNormalization(Op):
    """(x - mean) / deviation over the axes; without normalize_variance x - mean.

    The deviation is sqrt(variance) + eps, or with eps_mode "inside" sqrt(variance + eps).
    """

    eps: float = 1e-9
    eps_mode: str = "outside"
    normalize_variance: bool = True
    sig = Sig("x: T, axes: I[0..1] -> y: T", T=FLOATS_BF16, I=INTEGERS)

    def infer(self, x: Value, axes: Value) -> TensorType:
        normal_axes(self.name, axes.ints() or [], len(x.shape))
        return x.tensor

    def reference(self, x: Array, axes: Array) -> Array:
        w = wide(x)
        over = tuple(int(a) for a in axes.reshape(-1))
        d = w - np.mean(w, axis=over, keepdims=True)
        if not self.normalize_variance:
            return rounded(d, x)
        variance = mean_square(d, over)
        root = np.sqrt(variance + self.eps) if self.eps_mode == "inside" else np.sqrt(variance) + self.eps
        return rounded(d / root, x)

    def decompose(self, b: Builder, x: Value, axes: Value) -> Value:
        w = widened(b, x)
        d = b.Sub(w, b.ReduceMean(w, axes, noop_with_empty_axes=True))
        if not self.normalize_variance:
            return narrowed(b, d, x)
        variance, eps = b.ReduceMean(b.Mul(d, d), axes, noop_with_empty_axes=True), b.const(self.eps, w.dtype)
        root = b.Sqrt(b.Add(variance, eps)) if self.eps_mode == "inside" else b.Add(b.Sqrt(variance), eps)
        return narrowed(b, b.Mul(d, b.Reciprocal(root)), x)

    onnx = (
        Form("MeanVarianceNormalization", 9, attrs={"axes": AsInput((0, 2, 3), index=1, dtype=i64)}, T={"T": FLOATS}),
        Form("MeanVarianceNormalization", 13, T={"T": FLOATS_BF16}),
    )
    openvino = (
        Form(
            "MVN",
            2,
            T={"T": FLOATS_BF16},
            sig=Sig("x: T -> y: T", T=FLOATS_BF16),
            read=read_mvn_2,
            attrs={
                "eps": Float(assumed=0.0),
                "across_channels": Bool(assumed=True),
                "normalize_variance": Bool(assumed=False),
                "reduction_axes": Ints(None),
            },
        ),
        Form(
            "MVN",
            6,
            T={"T": FLOATS_BF16, "I": {i32, i64}},
            sig=None,
            read=read_mvn_6,
            direct=True,
            attrs={
                "eps": Float(assumed=0.0),
                "normalize_variance": Bool(assumed=False),
                "eps_mode": Enum({"INSIDE_SQRT": "inside", "OUTSIDE_SQRT": "outside"}, assumed="inside"),
            },
        ),
    )


# ------------------------------------------------------------------------------- BatchNormalization
def trained(
    b: Builder, x: Value, scale: Value, bias: Value, mean: Value, var: Value, a: Attributes
) -> tuple[Value, ...]:
    """Training: normalised by the batch's own statistics; (y, running mean, running var, mean, var)."""
    rank = len(x.shape)
    axes = [i for i in range(rank) if i != 1] if getattr(a, "spatial", 1) else [0]
    w = widened(b, x)
    d, variance = centred(b, w, axes)
    factor = inverse_root(b, variance, a.epsilon)
    scale_, bias_ = (fit(b, widened(b, v), x, getattr(a, "spatial", 1)) for v in (scale, bias))
    y = narrowed(b, scaled(b, b.Mul(d, factor), scale_, bias_), x)
    flat = [reshaped(b, b.ReduceMean(v, axes, keepdims=False), mean.shape) for v in (b.Sub(w, d), variance)]

    def running(old: Value, new: Value) -> Value:
        kept = b.Mul(widened(b, old), b.const(a.momentum, w.dtype))
        fresh = b.Mul(new, b.const(1.0 - a.momentum, w.dtype))
        return narrowed(b, b.Add(kept, fresh), old)

    saved = [narrowed(b, v, mean) for v in flat]
    return y, running(mean, flat[0]), running(var, flat[1]), saved[0], saved[1]


def fit(b: Builder, v: Value, x: Value, spatial: int) -> Value:
    """A parameter as it broadcasts to x: per channel, or (spatial=0) per element of a sample."""
    if spatial:
        return per_channel(b, v, len(x.shape))
    return reshaped(b, v, x.shape[1:])


def read_batch_norm(b: Builder, a: Attributes, x: Value, scale: Value, bias: Value, mean: Value, var: Value) -> Results:
    """More than one output (from opset 14 on: training_mode) means training."""
    if getattr(a, "training_mode", a.outputs > 1):
        return trained(b, x, scale, bias, mean, var, a)[: 3 if hasattr(a, "training_mode") else 5]
    if getattr(a, "spatial", 1):
        return b.BatchNormalization(x, scale, bias, mean, var, epsilon=a.epsilon)
    factor = b.Mul(fit(b, scale, x, 0), inverse_root(b, fit(b, var, x, 0), a.epsilon))
    return b.Add(b.Mul(b.Sub(x, fit(b, mean, x, 0)), factor), fit(b, bias, x, 0))


def one_type(op: BatchNormalization, *operands: Value) -> bool:
    return all(v.dtype == operands[0].dtype for v in operands)


def write_one_type(b: Builder, op: BatchNormalization, x: Value, *operands: Value) -> Results:
    """All operands in x's type, where the form has one type for all."""
    if one_type(op, x, *operands):
        return op.decompose(b, x, *operands)
    return b.add(op, x, *[narrowed(b, v, x) for v in operands])


BN_ATTRS = {"epsilon": Float(EPSILON), "momentum": Float(single(0.9))}
BN_TYPES = {"T": FLOATS, "T1": FLOATS, "T2": FLOATS}
BN_1 = {**BN_ATTRS, "spatial": Int(1), "is_test": Int(0)}


BN_SIG_1 = Sig(
    "scale: T1[1], bias: T1[1], x: T[>=2], mean: T2[1], var: T2[1] -> y: T",
    **dict.fromkeys(("T", "T1", "T2"), FLOATS_BF16),
)
BN_ANY = Sig("x: T[>=2], scale: T1, bias: T1, mean: T2, var: T2 -> y: T", T=FLOATS_BF16, T1=FLOATS_BF16, T2=FLOATS_BF16)
"""With spatial=0 there is a parameter for each element of a sample."""


def read_batch_norm_1(
    b: Builder, a: Attributes, scale: Value, bias: Value, x: Value, mean: Value, var: Value
) -> Results:
    """BatchNormInference of opset 1 has its data third."""
    return b.BatchNormalization(x, scale, bias, mean, var, epsilon=a.epsilon)


@op
class BatchNormalization(Op):
    """(x - mean) / sqrt(var + epsilon) · scale + bias, parameters per channel (axis 1); inference."""

    epsilon: float = EPSILON
    sig = Sig(
        "x: T[>=2], scale: T1[1], bias: T1[1], mean: T2[1], var: T2[1] -> y: T",
        T=FLOATS_BF16,
        T1=FLOATS_BF16,
        T2=FLOATS_BF16,
    )

    def infer(self, x: Value, *parameters: Value) -> TensorType:
        rank = len(x.shape)
        require(rank >= 2, shape_codes.WRONG_RANK, op=self.name, operand="x", type=x.tensor, expected="2 or more")
        for name, v in zip(("scale", "bias", "mean", "var"), parameters, strict=True):
            require(v.rank in (None, 1), shape_codes.WRONG_RANK, op=self.name, operand=name, type=v.tensor, expected=1)
            facts = {
                "what": f"channels of x and elements of {name}",
                "a": x.shape[1],
                "b": v.shape[0] if v.rank else "?",
            }
            require(v.rank is None or same(v.shape[0], x.shape[1]), shape_codes.SIZES_DIFFER, op=self.name, **facts)
        return x.tensor

    def reference(self, x: Array, scale: Array, bias: Array, mean: Array, var: Array) -> Array:
        factor, shift = self.factor_and_shift(*(wide(v) for v in (scale, bias, mean, var)))
        return rounded(wide(x) * channelwise(factor, x.ndim) + channelwise(shift, x.ndim), x)

    def factor_and_shift(self, scale: Array, bias: Array, mean: Array, var: Array) -> tuple[Array, Array]:
        """Return what each channel is multiplied by and what is added then, in the parameters' precision."""
        factor = scale / np.sqrt(var + self.epsilon)
        return factor, bias - mean * factor

    def decompose(self, b: Builder, x: Value, scale: Value, bias: Value, mean: Value, var: Value) -> Value:
        w, *rest = (widened(b, v) for v in (x, scale, bias, mean, var))
        scale, bias, mean, var = (v if v.dtype == w.dtype else b.Cast(v, to=w.dtype) for v in rest)
        factor = b.Div(scale, b.Sqrt(b.Add(var, b.const(self.epsilon, var.dtype))))
        shift = b.Sub(bias, b.Mul(mean, factor))
        rank = len(x.shape)
        return narrowed(b, b.Add(b.Mul(w, per_channel(b, factor, rank)), per_channel(b, shift, rank)), x)

    onnx = (
        Form(
            "BatchNormalization",
            1,
            attrs={**BN_1, "consumed_inputs": Ignored()},
            T=BN_TYPES,
            read=read_batch_norm,
            sig=BN_ANY,
        ),
        Form("BatchNormalization", 6, attrs=BN_1),
        Form(
            "BatchNormalization",
            7,
            attrs={**BN_ATTRS, "spatial": Int(1)},
            direct=True,
            when=one_type,
            write=write_one_type,
        ),
        Form("BatchNormalization", 9, attrs=BN_ATTRS, sig=None),
        Form(
            "BatchNormalization",
            14,
            attrs={**BN_ATTRS, "training_mode": Bool(False)},
            T={"T": FLOATS_BF16, "T1": FLOATS_BF16, "T2": FLOATS_BF16},
        ),
        Form("BatchNormalization", 15, when=None),
    )
    openvino = (
        Form(
            "BatchNormInference",
            1,
            attrs={"epsilon": Float(assumed=0.0, lo=0.0)},
            direct=False,
            T={"T": FLOATS_BF16, "T1": FLOATS_BF16, "T2": FLOATS_BF16},
            sig=BN_SIG_1,
            read=read_batch_norm_1,
        ),
        Form("BatchNormInference", 5, sig=None, read=None, when=one_type, write=write_one_type),
    )


# -------------------------------------------------------------------- Layer-, RMSNormalization
def read_layer_norm(b: Builder, a: Attributes, x: Value, scale: Value, bias: Value | None = None) -> Results:
    """The mean and inverse deviation are computed where they are asked for."""
    y = b.LayerNormalization(x, scale, bias, axis=a.axis, epsilon=a.epsilon)
    if a.outputs < 2:
        return y
    stash = bf16 if a.stash_type == 16 else f32
    axes = trailing(normal_axis("LayerNormalization", a.axis, len(x.shape)), len(x.shape))
    w = widened(b, x)
    _, variance = centred(b, w, axes)
    return y, cast(b, b.ReduceMean(w, axes), stash), cast(b, inverse_root(b, variance, a.epsilon), stash)


def cast(b: Builder, x: Value, to: DType) -> Value:
    return x if x.dtype == to else b.Cast(x, to=to)


STASH = {"stash_type": Int(1)}


def write_layer_norm(b: Builder, op: LayerNormalization, x: Value, scale: Value, bias: Value | None = None) -> Results:
    return scaled(b, mvn(b, x, trailing(op.axis, len(x.shape)), op.epsilon), scale, bias)


@op
class LayerNormalization(Op):
    """(x - mean) / sqrt(variance + epsilon) over the axes from `axis` on, rounded to x's type; · scale + bias."""

    axis: int = -1
    epsilon: float = EPSILON
    sig = Sig("x: T, scale: T, bias?: T -> y: T", T=FLOATS_BF16)

    def infer(self, x: Value, scale: Value, bias: Value | None = None) -> TensorType:
        normal_axis(self.name, self.axis, len(x.shape))
        for v in (scale, bias):
            if v is not None:
                into(self.name, v, x)
        return x.tensor

    def reference(self, x: Array, scale: Array, bias: Array | None = None) -> Array:
        w = wide(x)
        over = tuple(range(self.axis % x.ndim, x.ndim))
        d = w - np.mean(w, axis=over, keepdims=True)
        y = rounded(d * (1.0 / np.sqrt(mean_square(d, over) + self.epsilon)), x) * scale
        return y if bias is None else y + bias

    def decompose(self, b: Builder, x: Value, scale: Value, bias: Value | None = None) -> Value:
        d, variance = centred(b, widened(b, x), trailing(self.axis, len(x.shape)))
        return scaled(b, narrowed(b, b.Mul(d, inverse_root(b, variance, self.epsilon)), x), scale, bias)

    onnx = (
        Form(
            "LayerNormalization",
            17,
            T=FLOATS_BF16,
            read=read_layer_norm,
            direct=True,
            attrs={"axis": Int(-1), "epsilon": Float(EPSILON), **STASH},
        ),
    )
    openvino = (write_only(write_layer_norm, since=6),)


def read_simplified(b: Builder, a: Attributes, x: Value, scale: Value) -> Results:
    """ONNX Runtime's name of RMSNormalization, in the standard's domain, has the inverse deviation too."""
    y = b.RMSNormalization(x, scale, axis=a.axis, epsilon=a.epsilon)
    if a.outputs == 1:
        return y
    w = widened(b, x)
    square = b.ReduceMean(b.Mul(w, w), trailing(a.axis, len(x.shape)))
    return y, inverse_root(b, square, a.epsilon)


@op
class RMSNormalization(Op):
    """x / sqrt(mean(x²) + epsilon) over the axes from `axis` on, rounded to x's type; · scale, in scale's type."""

    axis: int = -1
    epsilon: float = EPSILON
    sig = Sig("x: T, scale: V -> y: V", T=FLOATS_BF16, V=FLOATS_BF16)

    def infer(self, x: Value, scale: Value) -> TensorType:
        normal_axis(self.name, self.axis, len(x.shape))
        into(self.name, scale, x)
        return TensorType(scale.dtype, x.shape)

    def reference(self, x: Array, scale: Array) -> Array:
        w = wide(x)
        y = rounded(w / np.sqrt(mean_square(w, tuple(range(self.axis % x.ndim, x.ndim))) + self.epsilon), x)
        return rounded(y, scale) * scale

    def decompose(self, b: Builder, x: Value, scale: Value) -> Value:
        w = widened(b, x)
        square = b.ReduceMean(b.Mul(w, w), trailing(self.axis, len(x.shape)))
        root = b.Sqrt(b.Add(square, b.const(self.epsilon, w.dtype)))
        return b.Mul(narrowed(b, narrowed(b, b.Div(w, root), x), scale), scale)

    onnx = (
        Form(
            "RMSNormalization",
            23,
            T={"T": FLOATS_BF16, "V": FLOATS_BF16},
            attrs={"axis": Int(-1), "epsilon": Float(EPSILON), **STASH},
        ),
        Form(
            "SimplifiedLayerNormalization",
            1,
            T={"T": FLOATS_BF16, "V": FLOATS_BF16},
            attrs={"axis": Int(-1), "epsilon": Float(EPSILON), **STASH},
            sig=Sig("x: T, scale: V -> y: V, inv_std_var: any", T=FLOATS_BF16, V=FLOATS_BF16),
            read=read_simplified,
        ),
    )


# ------------------------------------------------------------------ Instance-, GroupNormalization
def check_channels(op: Op, x: Value, *parameters: Value) -> None:
    require(len(x.shape) >= 2, shape_codes.WRONG_RANK, op=op.name, operand="x", type=x.tensor, expected="2 or more")
    for v in parameters:
        require(v.rank == 1, shape_codes.WRONG_RANK, op=op.name, operand="scale or bias", type=v.tensor, expected=1)
        facts = {"what": "channels and scale or bias", "a": x.shape[1], "b": v.shape[0]}
        require(same(v.shape[0], x.shape[1]), shape_codes.SIZES_DIFFER, op=op.name, **facts)


def write_instance_norm(b: Builder, op: InstanceNormalization, x: Value, scale: Value, bias: Value) -> Results:
    rank = len(x.shape)
    return scaled(b, mvn(b, x, range(2, rank), op.epsilon), per_channel(b, scale, rank), per_channel(b, bias, rank))


@op
class InstanceNormalization(Op):
    """(x - mean) / sqrt(variance + epsilon) · scale + bias, statistics per sample and channel."""

    epsilon: float = EPSILON
    sig = Sig("x: T[>=2], scale: T[1], bias: T[1] -> y: T", T=FLOATS_BF16)

    def infer(self, x: Value, scale: Value, bias: Value) -> TensorType:
        check_channels(self, x, scale, bias)
        return x.tensor

    def reference(self, x: Array, scale: Array, bias: Array) -> Array:
        w = wide(x)
        over = tuple(range(2, x.ndim))
        d = w - np.mean(w, axis=over, keepdims=True)
        y = d * (1.0 / np.sqrt(mean_square(d, over) + self.epsilon))
        return rounded(y * channelwise(wide(scale), x.ndim) + channelwise(wide(bias), x.ndim), x)

    def decompose(self, b: Builder, x: Value, scale: Value, bias: Value) -> Value:
        rank = len(x.shape)
        d, variance = centred(b, widened(b, x), range(2, rank))
        factors = (per_channel(b, widened(b, v), rank) for v in (scale, bias))
        return narrowed(b, scaled(b, b.Mul(d, inverse_root(b, variance, self.epsilon)), *factors), x)

    onnx = (
        Form("InstanceNormalization", 1, attrs={"epsilon": Float(EPSILON), "consumed_inputs": Ignored()}, T=FLOATS),
        Form("InstanceNormalization", 6, attrs={"epsilon": Float(EPSILON)}),
        Form("InstanceNormalization", 22, T=PREV | {bf16}),
    )
    openvino = (write_only(write_instance_norm, since=6),)


def read_group_norm_18(b: Builder, a: Attributes, x: Value, scale: Value, bias: Value) -> Results:
    """Opset 18 had a scale and a bias per group."""
    size = x.shape[1] // a.num_groups
    known = size.is_const
    require(known, codes.NEEDS_CONSTANT, op="GroupNormalization", operand="the number of channels")
    ones = np.ones((1, int(size)))
    wide_scale, wide_bias = (b.Reshape(b.Mul(b.Unsqueeze(v, [1]), b.const(ones, v.dtype)), [-1]) for v in (scale, bias))
    return b.GroupNormalization(x, wide_scale, wide_bias, num_groups=a.num_groups, epsilon=a.epsilon)


@op
class GroupNormalization(Op):
    """(x - mean) / sqrt(variance + epsilon) per sample and group of channels; · scale + bias per channel."""

    num_groups: int
    epsilon: float = EPSILON
    sig = Sig("x: T[>=2], scale: T[1], bias: T[1] -> y: T", T=FLOATS_BF16)

    def infer(self, x: Value, scale: Value, bias: Value) -> TensorType:
        check_channels(self, x, scale, bias)
        positive = self.num_groups > 0
        require(
            positive,
            codes.ATTRIBUTE_RANGE,
            op=self.name,
            attribute="num_groups",
            value=self.num_groups,
            expected="positive",
        )
        even = multiple(x.shape[1], self.num_groups)
        facts = {"what": "the number of channels", "value": x.shape[1], "expected": f"a multiple of {self.num_groups}"}
        require(even, shape_codes.SIZE_RANGE, op=self.name, **facts)
        return x.tensor

    def reference(self, x: Array, scale: Array, bias: Array) -> Array:
        w = wide(x).reshape(x.shape[0], self.num_groups, math.prod(x.shape[1:]) // self.num_groups)
        d = w - np.mean(w, axis=2, keepdims=True)
        y = rounded((d / np.sqrt(mean_square(d, 2) + self.epsilon)).reshape(x.shape), x)
        return y * channelwise(scale, x.ndim) + channelwise(bias, x.ndim)

    def _group_mean(self, b: Builder, w: Value) -> Value:
        """For each channel the mean of its group."""
        planes = b.ReduceMean(w, list(range(2, len(w.shape))))
        n, channels = w.shape[:2]
        per = channels // self.num_groups
        means = b.ReduceMean(reshaped(b, planes, [n, self.num_groups, per]), [2])
        return reshaped(b, b.Expand(means, b.dims([n, self.num_groups, per])), planes.shape)

    def decompose(self, b: Builder, x: Value, scale: Value, bias: Value) -> Value:
        rank, w = len(x.shape), widened(b, x)
        if rank > 2:  # by planes: no Reshape keeps the channels from standing last
            d = b.Sub(w, self._group_mean(b, w))
            y = b.Mul(d, inverse_root(b, self._group_mean(b, b.Mul(d, d)), self.epsilon))
        else:
            flat = [x.shape[0], self.num_groups, x.shape[1] // self.num_groups]
            d, variance = centred(b, reshaped(b, w, flat), [2])
            y = reshaped(b, b.Mul(d, inverse_root(b, variance, self.epsilon)), x.shape)
        y = narrowed(b, y, x)
        return scaled(b, y, per_channel(b, scale, rank), per_channel(b, bias, rank))

    onnx = (
        Form(
            "GroupNormalization",
            18,
            attrs={"num_groups": Int(), "epsilon": Float(EPSILON)},
            T=FLOATS_BF16,
            read=read_group_norm_18,
        ),
        Form("GroupNormalization", 21, attrs={"num_groups": Int(), "epsilon": Float(EPSILON), **STASH}, read=None),
    )
    openvino = (
        Form("GroupNormalization", 12, attrs={"num_groups": Int(), "epsilon": Float(assumed=0.0)}, T=OV_SOFTMAX),
    )
