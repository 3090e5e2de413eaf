"""Two-way attribute codecs: one declaration reads and writes an attribute in both formats.

A codec stands in a Form under the attribute's name in the file; it fills the operation's field of
that name, or of `to`.  ONNX attributes arrive decoded (int, float, str, lists); OpenVINO's are text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

import numpy as np

from irc.arrays import Array
from irc.diagnostics import NOWHERE, Code, Loc, Problem, Sink
from irc.diagnostics.codes import operation as codes
from irc.formats.document import Attr, RawGraph, RawTensor
from irc.ir.graph import Value
from irc.ir.literal import AttributeValue
from irc.ir.types import DTYPES, DType, MapType, OptionalType, SequenceType, TensorType, dtype_from_onnx, dtype_from_ov

if TYPE_CHECKING:
    from irc.opdef.base import Op

N = TypeVar("N", int, float, tuple[int, ...], tuple[float, ...])
V = TypeVar("V", tuple[int, ...], tuple[str, ...])


class Named:
    """An object that stands for what no value says, told by identity."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


REQUIRED: Any = Named("REQUIRED")
"""Default of an attribute that must be written."""


@dataclass(frozen=True)
class Reading:
    """What a codec knows while decoding: for messages and warnings."""

    op: str
    attribute: str
    format: str
    sink: Sink | None = None
    loc: Loc = NOWHERE
    body: Callable[[RawGraph], Any] | None = None
    """Makes of a graph in an attribute what `irc.border.bodies` reads it with."""
    value: Callable[[str, bool], Value] | None = None
    """The value of that name; Problem where there is none, or, with True, where it is of the graph around this one."""

    def warn(self, code: Code, **facts: object) -> None:
        if self.sink is not None:
            self.sink.report(code, self.loc, op=self.op, attribute=self.attribute, **facts)

    def bad(self, text: Attr, expected: str) -> Problem:
        return Problem(codes.BAD_ATTRIBUTE, op=self.op, attribute=self.attribute, text=text, expected=expected)


@dataclass(frozen=True)
class Codec:
    """Base: `default` when absent (REQUIRED: an error), `assumed` when the specification requires the
    attribute but OpenVINO's reader takes this value in silence (a warning)."""

    default: AttributeValue = REQUIRED
    to: str | None = None
    assumed: AttributeValue = REQUIRED
    lo: float | None = None
    hi: float | None = None
    silent: bool = False
    """OpenVINO: not written while it has its default (ONNX never writes defaults)."""

    def field(self, attribute: str) -> str:
        return self.to or attribute.replace("-", "_")

    def absent(self, r: Reading) -> Any:
        if self.default is not REQUIRED:
            return self.default
        if self.assumed is not REQUIRED and r.format == "openvino":
            r.warn(codes.ASSUMED_ATTRIBUTE, assumed=self.encode(self.assumed, "openvino"))
            return self.assumed
        raise Problem(codes.MISSING_ATTRIBUTE, op=r.op, attribute=r.attribute)

    decode: ClassVar[Callable[..., AttributeValue]]
    """decode(self, raw, reading): the field's value from the attribute as the file has it; Problem IRC22xx if that
    is not allowed."""
    encode: ClassVar[Callable[..., Attr]]
    """encode(self, value, format): the attribute as the file has it; ValueError if this codec cannot say it."""

    def value(self, attribute: str, op: Op, operands: Sequence[Value | None]) -> AttributeValue:
        """What to write for this operation: its field; None: nothing."""
        own = self.field(attribute)
        return getattr(op, own) if own in op.__dataclass_fields__ else self.default

    def in_range(self, value: N, r: Reading) -> N:
        for x in value if isinstance(value, tuple) else (value,):
            if (self.lo is not None and not x >= self.lo) or (self.hi is not None and not x <= self.hi):
                between = f"in {self.lo or 0:g}..{self.hi or 0:g}"
                expected = f"at least {self.lo:g}" if self.hi is None else between
                raise Problem(codes.ATTRIBUTE_RANGE, op=r.op, attribute=r.attribute, value=x, expected=expected)
        return value


_INTEGER = re.compile(r"\s*[+-]?\d{1,40}\s*$")
_FLOAT = re.compile(r"\s*[+-]?(inf(inity)?|nan|(\d+\.?\d*|\.\d+)(e[+-]?\d+)?)", re.IGNORECASE)


def _int(raw: Attr, r: Reading) -> int:
    if isinstance(raw, bool) or (isinstance(raw, float) and not raw.is_integer()):
        raise r.bad(raw, "an integer")
    if isinstance(raw, str) and not _INTEGER.match(raw):
        raise r.bad(raw, "an integer")
    if r.format == "onnx" and not isinstance(raw, int):  # ONNX says what type an attribute has
        raise r.bad(raw, "an integer")
    if not isinstance(raw, str | int | float) or not -(2**63) <= int(raw) < 2**63:
        raise r.bad(raw, "an integer of 64 bits")
    return int(raw)


def _float(raw: Attr, r: Reading) -> float:
    if isinstance(raw, str) and r.format != "onnx":
        found = _FLOAT.match(raw)  # OpenVINO stops at the first bad character: "1,5" is 1.0
        if not found:
            raise r.bad(raw, "a number")
        if found.group(0) != raw.rstrip():
            r.warn(codes.ODD_NUMBER, text=raw, value=found.group(0).strip())
        return float(found.group(0))
    if not isinstance(raw, int | float):
        raise r.bad(raw, "a number")
    return float(raw)


def _items(raw: Attr, r: Reading) -> list[Attr]:
    if isinstance(raw, str):
        text = raw.strip().rstrip(",")
        if raw and not text:
            raise r.bad(raw, "a list")
        return [item.strip() for item in text.split(",")] if text else []
    if not isinstance(raw, Sequence):
        raise r.bad(raw, "a list")
    return list(raw)


def _at_least(least: int, values: V, r: Reading) -> V:
    """The values; Problem IRC2208 if they are fewer."""
    if len(values) < least:
        given, needed = len(values), f"at least {least}"
        raise Problem(codes.ATTRIBUTE_LENGTH, op=r.op, attribute=r.attribute, given=given, needed=needed)
    return values


def _ov_float(value: float) -> str:
    return "nan" if value != value else f"{value:.17g}"


def single(value: float) -> float:
    """The nearest f32: what an ONNX attribute holds."""
    return float(np.float32(value))


@dataclass(frozen=True)
class Int(Codec):
    """An integer."""

    def decode(self, raw: Attr, r: Reading) -> int:
        return self.in_range(_int(raw, r), r)

    def encode(self, value: int, format: str) -> Attr:
        return str(int(value)) if format == "openvino" else int(value)


@dataclass(frozen=True)
class Float(Codec):
    """A number; ONNX keeps it as f32."""

    def decode(self, raw: Attr, r: Reading) -> float:
        return self.in_range(_float(raw, r), r)

    def encode(self, value: float, format: str) -> Attr:
        return _ov_float(float(value)) if format == "openvino" else float(np.float32(value))


@dataclass(frozen=True)
class Bool(Codec):
    """true/false; ONNX has 0 and 1."""

    def decode(self, raw: Attr, r: Reading) -> bool:
        if r.format != "openvino":
            return bool(_int(raw, r))
        text = str(raw).strip().lower()
        if text not in ("true", "false", "0", "1"):
            r.warn(codes.ODD_BOOLEAN, text=raw)
        return text in ("true", "1")

    def encode(self, value: bool, format: str) -> Attr:
        return ("true" if value else "false") if format == "openvino" else int(bool(value))


@dataclass(frozen=True)
class Choice(Bool):
    """A boolean of the file that chooses between two canonical values; `no_too` is also written as false."""

    yes: AttributeValue = True
    no: AttributeValue = False
    no_too: AttributeValue = REQUIRED

    def decode(self, raw: Attr, r: Reading) -> AttributeValue:
        return self.yes if super().decode(raw, r) else self.no

    def encode(self, value: AttributeValue, format: str) -> Attr:
        if value not in (self.yes, self.no, self.no_too):
            raise ValueError(f"{value} cannot be written")
        return super().encode(value == self.yes, format)


@dataclass(frozen=True)
class Str(Codec):
    """Free text."""

    def decode(self, raw: Attr, r: Reading) -> str:
        if not isinstance(raw, str):
            raise r.bad(raw, "a string")
        return raw

    def encode(self, value: str, format: str) -> Attr:
        return str(value)


@dataclass(frozen=True)
class Ints(Codec):
    """A list of integers (a tuple in the operation), `least` of them or more."""

    least: int = 0

    def decode(self, raw: Attr, r: Reading) -> tuple[int, ...]:
        return _at_least(self.least, self.in_range(tuple(_int(x, r) for x in _items(raw, r)), r), r)

    def encode(self, value: Sequence[int], format: str) -> Attr:
        return ", ".join(str(int(x)) for x in value) if format == "openvino" else [int(x) for x in value]


@dataclass(frozen=True)
class PerAxis(Ints):
    """A number for each spatial axis: `axes`, or those of operand 0.  An empty field is written as `fill` for each."""

    fill: int = 1
    axes: int | None = None

    def value(self, attribute: str, op: Op, operands: Sequence[Value | None]) -> AttributeValue:
        given = super().value(attribute, op, operands)
        x = operands[0] if operands else None
        return given or (() if x is None else (self.fill,) * (self.axes or max(len(x.shape) - 2, 0)))


@dataclass(frozen=True)
class Floats(Codec):
    """A list of numbers."""

    def decode(self, raw: Attr, r: Reading) -> tuple[float, ...]:
        return self.in_range(tuple(_float(x, r) for x in _items(raw, r)), r)

    def encode(self, value: Sequence[float], format: str) -> Attr:
        if format == "openvino":
            return ", ".join(_ov_float(float(x)) for x in value)
        return [float(np.float32(x)) for x in value]


@dataclass(frozen=True)
class Strs(Codec):
    """A list of strings, `least` of them or more."""

    least: int = 0

    def decode(self, raw: Attr, r: Reading) -> tuple[str, ...]:
        return _at_least(self.least, tuple(str(x) for x in _items(raw, r)), r)

    def encode(self, value: Sequence[str], format: str) -> Attr:
        return ", ".join(value) if format == "openvino" else list(value)


@dataclass(frozen=True)
class Numbers(Codec):
    """A vector of numbers that the file has as a tensor, of element type `dtype` (None: that of the first operand)."""

    dtype: DType | None = None

    def decode(self, raw: Attr, r: Reading) -> tuple[int | float, ...]:
        if not isinstance(raw, RawTensor) or raw.dtype.kind not in "fiub":
            raise r.bad("" if isinstance(raw, RawTensor) else raw, "a tensor of numbers")
        array = raw.load().reshape(-1)
        whole = raw.dtype.is_integer
        return tuple(array.astype(np.int64 if whole else np.float64).tolist())

    def value(self, attribute: str, op: Op, operands: Sequence[Value | None]) -> AttributeValue:
        given = super().value(attribute, op, operands)
        x = operands[0] if operands else None
        return None if not given or x is None else (self.dtype or x.dtype, given)

    def encode(self, value: tuple[DType, Sequence[float]], format: str) -> Attr:
        dtype, numbers = value
        with np.errstate(all="ignore"):
            array = np.array(numbers, np.float64 if dtype.is_float else np.int64).astype(dtype.numpy)
        return RawTensor("", dtype, array.shape, lambda: array)


@dataclass(frozen=True)
class TypedNumbers(Codec):
    """A tensor of numbers or strings, as the name of its element type and its elements."""

    def decode(self, raw: Attr, r: Reading) -> tuple[str, tuple[int | float | str, ...]]:
        if not isinstance(raw, RawTensor) or raw.dtype.kind not in "fius":
            raise r.bad("" if isinstance(raw, RawTensor) else raw, "a tensor of numbers or strings")
        array = raw.load().reshape(-1)
        wide = {"f": np.float64, "s": object}.get(raw.dtype.kind, np.int64)
        return raw.dtype.name, tuple(array.astype(wide).tolist())

    def encode(self, value: tuple[str, Sequence[int | float | str]], format: str) -> Attr:
        kind = DTYPES[value[0]]
        array = np.array(value[1], kind.numpy)
        return RawTensor("", kind, array.shape, lambda: array)


class Enum(Codec):
    """One of a list of words (or numbers): `Enum({"file word": canonical}, default)`.

    A list of words stands for themselves.  OpenVINO's words are matched in any case, with a warning.
    """

    choices: dict[str | int | float, AttributeValue]

    def __init__(
        self,
        choices: Mapping[str, AttributeValue] | Mapping[int, AttributeValue] | Sequence[str],
        default: AttributeValue = REQUIRED,
        to: str | None = None,
        assumed: AttributeValue = REQUIRED,
    ) -> None:
        super().__init__(default, to, assumed)
        object.__setattr__(self, "choices", dict(choices) if isinstance(choices, Mapping) else {c: c for c in choices})

    def decode(self, raw: Attr, r: Reading) -> AttributeValue:
        if isinstance(raw, str | int | float) and raw in self.choices:
            return self.choices[raw]
        words = [str(c) for c in self.choices]
        if r.format == "openvino":
            for word, value in self.choices.items():
                if str(word).lower() == str(raw).lower():
                    r.warn(codes.ODD_CASE, text=raw, value=word)
                    return value
        near = (r.sink or Sink()).nearest(str(raw), words)
        problem = Problem(
            codes.BAD_ENUM,
            op=r.op,
            attribute=r.attribute,
            text=raw,
            choices=", ".join(words),
            guess=f"; did you mean {near}?" if near else "",
        )
        problem.meant = next((value for word, value in self.choices.items() if str(word) == near), None)
        raise problem

    def encode(self, value: AttributeValue, format: str) -> Attr:
        for word, canonical in self.choices.items():
            if canonical == value:
                return word
        raise ValueError(f"{value} cannot be written")


@dataclass(frozen=True)
class DTypeAttr(Codec):
    """An element type: ONNX the TensorProto number, OpenVINO the lower-case name."""

    def decode(self, raw: Attr, r: Reading) -> DType:
        found = dtype_from_ov(str(raw)) if r.format == "openvino" else dtype_from_onnx(_int(raw, r))
        if found is None:
            raise r.bad(raw, "an element type")
        if r.format == "openvino" and raw not in (found.ov, "undefined"):
            r.warn(codes.ODD_CASE, text=raw, value=found.ov)
        return found

    def encode(self, value: DType, format: str) -> Attr:
        code = value.ov if format == "openvino" else value.onnx
        if code is None:
            raise ValueError(f"{value} has no name in {format}")
        return code


@dataclass(frozen=True)
class TypeAttr(Codec):
    """The type of a value (ONNX's TypeProto)."""

    def decode(self, raw: Attr, r: Reading) -> Any:
        if not isinstance(raw, TensorType | SequenceType | OptionalType | MapType):
            raise r.bad(type(raw).__name__, "a type")
        return raw

    def encode(self, value: Any, format: str) -> Attr:
        return value


@dataclass(frozen=True)
class Region(Codec):
    """A graph: reading gives an `irc.border.bodies.Body`, from which the row's `read` makes a region."""

    def decode(self, raw: Attr, r: Reading) -> Any:
        if not isinstance(raw, RawGraph) or r.body is None:
            raise r.bad(type(raw).__name__, "a graph")
        return r.body(raw)

    def encode(self, value: Any, format: str) -> Attr:
        raise ValueError("a region is written with its captured values")


class Padded(Protocol):
    """An operation with padding before and after each spatial axis."""

    @property
    def pads_begin(self) -> tuple[int, ...]: ...
    @property
    def pads_end(self) -> tuple[int, ...]: ...


@dataclass(frozen=True)
class Pads(Codec):
    """ONNX `pads` (all begins, then all ends) ↔ the fields `pads_begin` and `pads_end`."""

    def decode(self, raw: Attr, r: Reading) -> tuple[tuple[int, ...], tuple[int, ...]]:
        found = tuple(_int(x, r) for x in _items(raw, r))
        if len(found) % 2:
            raise r.bad(raw, "an even number of integers (begins, then ends)")
        self.in_range(found, r)
        return found[: len(found) // 2], found[len(found) // 2 :]

    def absent(self, r: Reading) -> AttributeValue:
        return (), ()

    def value(self, attribute: str, op: Padded, operands: Sequence[Value | None]) -> AttributeValue:
        both = op.pads_begin, op.pads_end
        return both if any((*both[0], *both[1])) else None

    def encode(self, value: tuple[Sequence[int], Sequence[int]], format: str) -> Attr:
        return [int(x) for x in (*value[0], *value[1])]


@dataclass(frozen=True)
class AsInput(Codec):
    """An attribute of this version that is a constant operand of the canonical operation.

    `index` is the operand's position, `dtype` its element type (None: that of operand 0), `scalar` whether it is
    of rank 0.  Read: a constant is made and put there.  Written: the operand must be constant.
    """

    index: int = 0
    dtype: DType | None = None
    scalar: bool = False

    def array(self, raw: Attr, r: Reading, dtype: DType) -> Array:
        items = [raw] if self.scalar else _items(raw, r)
        whole = dtype.is_integer
        with np.errstate(all="ignore"):  # a number that is too large for a float is infinite
            data = np.array([(_int if whole else _float)(x, r) for x in items], np.int64 if whole else np.float64)
            data = data.astype(dtype.numpy)
        return data.reshape(()) if self.scalar else data

    def encode(self, value: Array, format: str) -> Attr:
        items = np.asarray(value).reshape(-1).tolist()
        items = [float(x) if isinstance(x, float) else int(x) for x in items]
        if format == "openvino":
            return ", ".join(_ov_float(x) if isinstance(x, float) else str(x) for x in items)
        return items[0] if self.scalar else items


def _nothing(op: Op, *operands: Value | None) -> int | None:
    return None


@dataclass(frozen=True)
class FromOperands(Int):
    """An integer that says something about the operands and is no field of the operation (`broadcast` before ONNX
    opset 7): read like any other; `of(op, *operands)` is what to write, None where the row cannot say it."""

    of: Callable[..., int | None] = _nothing

    def value(self, attribute: str, op: Op, operands: Sequence[Value | None]) -> AttributeValue:
        return self.of(op, *operands)


@dataclass(frozen=True)
class Ignored(Codec):
    """An attribute without effect on the result (`consumed_inputs`): read and forgotten, never written anew."""

    default: AttributeValue = None

    def decode(self, raw: Attr, r: Reading) -> None:
        return None
