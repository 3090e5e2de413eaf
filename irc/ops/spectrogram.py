"""Spectra of pieces of a signal: STFT, MelWeightMatrix.

Sources: ONNX STFT, MelWeightMatrix; OpenVINO specification, STFT-15.
"""

from __future__ import annotations

from irc.diagnostics import Facts, require
from irc.diagnostics.codes import shape as codes
from irc.ir.graph import Value
from irc.ir.relation import at_most, same
from irc.ir.types import FLOATS_BF16, DType, f8e4m3fn, f8e5m2, f32, f64
from irc.opdef.base import Op, op
from irc.opdef.builder import Builder
from irc.opdef.codecs import Bool, DTypeAttr
from irc.opdef.conversions import as_i64, as_scalar, as_vector
from irc.opdef.forms import Attributes, Form
from irc.opdef.precision import widened
from irc.opdef.signature import Sig
from irc.opdef.typesets import INDEX
from irc.ops.signal_window import counted

OV_SIG = Sig("x: T[1..2], window: T[1], size: I[one], step: I[one] -> y: T")


def read_stft(b: Builder, a: Attributes, x: Value, window: Value, size: Value, step: Value) -> Value:
    """OpenVINO's signal is real and may lack the batch; a window shorter than the frame stands in its middle."""
    if x.dtype not in FLOATS_BF16:
        found = read_stft(b, a, widened(b, x), widened(b, window), size, step)
        return b.Cast(found, to=x.dtype, saturate=False)
    n = as_vector(b, as_i64(b, size))
    missing = b.Sub(n, b.dims(window.shape))
    before = b.Div(missing, b.const([2]))
    known = n.ints()
    if known is None or window.shape[0] != known[0]:
        window = b.Pad(window, b.Concat(before, b.Sub(missing, before), axis=0))
    batched = b.Unsqueeze(x, [0, 2] if x.rank == 1 else [2])
    y = b.STFT(batched, step, window, size)
    if a.transpose_frames:
        y = b.Transpose(y, [0, 2, 1, 3])
    return b.Squeeze(y, [0]) if x.rank == 1 else y


@op
class STFT(Op):
    """The transforms of frames of a signal (batch, length, 1 or 2): (batch, frames, elements, 2).

    A frame begins every `step` elements, is multiplied by `window`, and as long as that or as `length` says, or as
    the signal. onesided: the first half of each transform.
    """

    onesided: bool = True
    sig = Sig("x: T[3], step: I[one], window?: T[1], length?: I[one] -> y: T", T=FLOATS_BF16, I=INDEX)

    def decompose(
        self, b: Builder, x: Value, step: Value, window: Value | None = None, length: Value | None = None
    ) -> Value:
        size, stride = x.shape[1], b.Max(as_vector(b, as_i64(b, step)), b.const([1]))
        if length is not None:
            n = as_vector(b, as_i64(b, length))
        else:
            n = b.dims([size if window is None else window.shape[0]])
        known, steps = n.dims(), step.ints()
        if known is not None:
            facts: Facts = {"op": self.name, "what": "length of a frame", "value": known[0]}
            require(at_most(known[0], size), codes.SIZE_RANGE, **facts, expected=f"at most {size}")
        if known is not None and window is not None:
            what, a, c = "lengths of window and frame", window.shape[0], known[0]
            require(same(a, c), codes.SIZES_DIFFER, op=self.name, what=what, a=a, b=c)
        if known is not None and steps is not None:
            count = b.dims([(size - known[0]) // max(steps[0], 1) + 1])
        else:
            slack = b.Sub(b.dims([size]), n)
            whole = b.Add(b.Div(slack, stride), b.const([1]))
            count = b.Where(b.Less(slack, b.const([0])), b.const([0]), whole)
        starts = b.Mul(b.Range(b.const(0), as_scalar(b, count), b.const(1)), stride)
        places = b.Add(b.Unsqueeze(starts, [1]), b.Range(b.const(0), as_scalar(b, n), b.const(1)))
        frames = b.Gather(x, places, b.const(1))
        if window is not None:
            frames = b.Mul(frames, b.Reshape(window, b.const([-1, 1])))
        return b.DFT(frames, None, b.const(2), onesided=self.onesided)

    onnx = (Form("STFT", 17, attrs={"onesided": Bool(True)}, T={"T": FLOATS_BF16, "I": INDEX}),)
    openvino = (
        Form(
            "STFT",
            15,
            attrs={"transpose_frames": Bool(assumed=False)},
            sig=OV_SIG,
            T={"T": FLOATS_BF16 | {f8e4m3fn, f8e5m2}, "I": INDEX},
            read=read_stft,
        ),
    )


@op
class MelWeightMatrix(Op):
    """Weights (dft_length // 2 + 1, bins) of overlapping triangles whose corners are evenly spaced in mel.

    A frequency f is 2595 · log₁₀(1 + f / 700) mel. Computed in f64 and rounded once.
    """

    output_datatype: DType = f32
    sig = Sig(
        "bins: I[one], dft_length: I[one], sample_rate: I[one], lower: F[one], upper: F[one] -> y: any",
        I=INDEX,
        F=FLOATS_BF16,
    )

    def decompose(self, b: Builder, bins: Value, dft_length: Value, sample_rate: Value, *edges: Value) -> Value:
        count, length = (as_i64(b, as_scalar(b, v)) for v in (bins, dft_length))
        rate = b.Cast(as_scalar(b, sample_rate), to=f64)
        low, high = (self._mel(b, b.Cast(as_scalar(b, v), to=f64)) for v in edges)
        corners = b.Add(count, b.const(2))
        step = b.Div(b.Sub(high, low), b.Cast(corners, to=f64))
        mel = b.Add(b.Mul(counted(b, corners), step), low)
        hertz = b.Mul(b.Sub(b.Pow(b.const(10.0, f64), b.Div(mel, b.const(2595.0, f64))), b.const(1.0, f64)), 700.0)
        lines = b.Cast(b.Add(length, b.const(1)), to=f64)
        places = b.Floor(b.Div(b.Mul(hertz, lines), rate))
        first, middle, last = (
            b.Gather(places, b.Add(b.Range(b.const(0), count, b.const(1)), k), b.const(0)) for k in range(3)
        )
        j = b.Unsqueeze(counted(b, b.Add(b.Div(length, b.const(2)), b.const(1))), [1])
        rising = b.And(b.GreaterOrEqual(j, first), b.LessOrEqual(j, middle))
        falling = b.And(b.GreaterOrEqual(j, middle), b.Less(j, last))
        one, nothing = b.const(1.0, f64), b.const(0.0, f64)
        up = b.Where(b.Equal(first, middle), one, b.Div(b.Sub(j, first), b.Sub(middle, first)))
        down = b.Div(b.Sub(last, j), b.Sub(last, middle))
        return b.Cast(b.Where(falling, down, b.Where(rising, up, nothing)), to=self.output_datatype)

    def _mel(self, b: Builder, hertz: Value) -> Value:
        ratio = b.Add(b.Div(hertz, b.const(700.0, f64)), b.const(1.0, f64))
        return b.Mul(b.Div(b.Log(ratio), b.Log(b.const(10.0, f64))), b.const(2595.0, f64))

    onnx = (Form("MelWeightMatrix", 17, attrs={"output_datatype": DTypeAttr(f32)}, T={"I": INDEX, "F": FLOATS_BF16}),)
