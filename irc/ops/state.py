"""State that lives between inferences: ReadValue and Assign.

A variable is named by `variable_id`; ReadValue yields its value, Assign sets the one of the next inference.
Source: OpenVINO specification, ReadValue-3/-6, Assign-3/-6.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from irc.diagnostics import require
from irc.diagnostics.codes import operation
from irc.formats.document import Attr
from irc.ir.dim import Dim, Symbol
from irc.ir.graph import Value
from irc.ir.types import DType, Shape, TensorType, Type
from irc.opdef.base import Op, op
from irc.opdef.builder import Builder
from irc.opdef.codecs import Codec, DTypeAttr, Reading, Str
from irc.opdef.forms import Attributes, Form
from irc.opdef.signature import Sig

_RANGE = re.compile(r"(\d*)\.\.(\d*)$")


@dataclass(frozen=True)
class PartialShape(Codec):
    """A shape with unknown sizes: `2,?,1..5`; `...` is an unknown rank (None)."""

    def decode(self, raw: Attr, r: Reading) -> Shape | None:
        text = str(raw).strip().strip("[]").strip()
        if text == "...":
            return None
        return tuple(self._dim(item.strip(), r) for item in text.split(",")) if text else ()

    def _dim(self, item: str, r: Reading) -> Dim:
        if item in ("?", "-1"):
            return Dim.fresh("state")
        if item.isdigit():
            return Dim.of(int(item))
        found = _RANGE.match(item)
        if not found:
            raise r.bad(item, "a size, ? or a range")
        low, high = (int(g) if g else None for g in found.groups())
        return Dim.symbol(str(Dim.fresh("state")), low or 0, high)

    def encode(self, value: Shape | None, format: str) -> str:
        return "..." if value is None else ",".join(map(self._text, value))

    @staticmethod
    def _text(dim: Dim) -> str:
        if dim.is_const:
            return str(dim)
        atom = dim.terms[0][0][0] if len(dim.terms) == 1 and len(dim.terms[0][0]) == 1 else None
        low, high = (atom.lo, atom.hi) if isinstance(atom, Symbol) else (0, None)
        return f"{low or ''}..{'' if high is None else high}" if low or high is not None else "?"


def read_first(b: Builder, a: Attributes, init: Value) -> Value:
    """ReadValue-3: the variable's type is that of its initial value."""
    return b.ReadValue(init, variable_id=a.variable_id, type=init.dtype, shape=init.tensor.shape)


@op
class ReadValue(Op):
    """The variable's value: what Assign set in the inference before, at first `init` (absent: zeros)."""

    variable_id: str
    type: DType
    shape: Shape | None
    sig = Sig("init?: any -> y: any")
    effect = True

    def infer(self, init: Value | None = None) -> TensorType:
        return TensorType(self.type, self.shape)

    openvino = (
        Form(
            "ReadValue",
            3,
            attrs={"variable_id": Str()},
            sig=Sig("init: any -> y: any"),
            read=read_first,
            direct=True,
            judges=("type", "shape"),
        ),
        Form(
            "ReadValue",
            6,
            sig=None,
            read=None,
            attrs={
                "variable_id": Str(),
                "variable_type": DTypeAttr(to="type"),
                "variable_shape": PartialShape(to="shape"),
            },
        ),
    )


def read_assign(b: Builder, a: Attributes, x: Value) -> Value:
    """Assign is kept for its effect; there must be a ReadValue of its variable."""
    layers = b.graph.extras.get("order", [])
    known = [str(r.attrs.get("variable_id")) for r in layers if r.type.lower() == "readvalue"]
    names = ", ".join(sorted(set(known))) or "none"
    require(a.variable_id in known, operation.UNKNOWN_VARIABLE, variable=a.variable_id, known=names)
    y = b.Assign(x, variable_id=a.variable_id)
    assert y.producer is not None
    b.graph.sinks.append(y.producer)
    return y


@op
class Assign(Op):
    """Sets the variable for the next inference; its result is the value."""

    variable_id: str
    sig = Sig("x: any -> y: any")
    effect = True

    def infer(self, x: Value) -> Type:
        assert x.type is not None
        return x.type

    openvino = (Form("Assign", 3, attrs={"variable_id": Str()}, read=read_assign, direct=True), Form("Assign", 6))
