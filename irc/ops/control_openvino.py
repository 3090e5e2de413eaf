"""How OpenVINO spells If, Loop and TensorIterator: bodies that port maps and back edges join to their layer.

A Parameter of a body stands for an operand as it is, for parts of one, one after the other, or for what a run hands
over to the next; an entry of the port map and the back edges say which.  The parts of an axis begin at `start` and
end at `end`, which count the borders between elements: -1 is the last.

Sources: OpenVINO If-8, Loop-5, TensorIterator-1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from irc.diagnostics import Problem, require
from irc.diagnostics.codes import operation as codes
from irc.formats.document import RawValue
from irc.ir.graph import Graph, Value
from irc.ir.types import TensorType, Type, i32, i64
from irc.opdef.builder import Builder
from irc.opdef.conversions import as_i64, as_scalar, as_type
from irc.opdef.forms import Attributes, Form, Results
from irc.opdef.signature import Sig
from irc.ops.layout import normal_axis
from irc.ops.loop_forms import ENDLESS, GOING, NUMBER, laid, loop


@dataclass(frozen=True)
class Joint:
    """An entry of a port map.  axis: the one that is cut into parts of `size`, None where none is."""

    port: str
    inner: str
    purpose: str
    axis: int | None
    start: int
    end: int
    stride: int
    size: int

    @staticmethod
    def of(entry: Mapping[str, str]) -> Joint:
        """Make one from the attributes of a file's entry.  Raises Problem."""

        def number(name: str, default: int) -> int:
            text = entry.get(name, str(default)).strip()
            if not text.lstrip("+-").isdigit() or len(text) > 19:
                raise Problem(
                    codes.BAD_ATTRIBUTE, op="the port map", attribute=name, text=text[:60], expected="an integer"
                )
            return int(text)

        stride, size = number("stride", 1), number("part_size", 1)
        facts = {"op": "the port map", "attribute": "stride", "value": stride, "expected": "another than 0"}
        require(stride != 0, codes.ATTRIBUTE_RANGE, **facts)
        facts = {"op": "the port map", "attribute": "part_size", "value": size, "expected": "positive"}
        require(size > 0, codes.ATTRIBUTE_RANGE, **facts)
        return Joint(
            _number(entry["external_port_id"]),
            _number(entry["internal_layer_id"]),
            entry.get("purpose", ""),
            number("axis", 0) if "axis" in entry else None,
            number("start", 0),
            number("end", -1),
            stride,
            size,
        )

    def bounds(self, b: Builder, size: Value) -> tuple[Value, Value]:
        """Compute where the parts of an axis of this size begin and end, as borders between elements."""

        def border(place: int) -> Value:
            return b.const(place) if place >= 0 else size if place == -1 else b.Add(size, b.const(place + 1))

        return border(self.start), border(self.end)

    def count(self, b: Builder, x: Value) -> Value:
        """Compute how many parts an operand has."""
        begin, end = self.bounds(b, _size(b, x, self.axis or 0))
        length = b.Sub(begin, end) if self.stride < 0 else b.Sub(end, begin)
        return length if abs(self.stride) == 1 else b.Div(length, b.const(abs(self.stride)))

    def part(self, b: Builder, x: Value, number: Value) -> Value:
        """Take the part of an operand with this number."""
        axis = normal_axis("the port map", self.axis or 0, len(x.shape))
        begin, _ = self.bounds(b, _size(b, x, axis))
        if self.stride == -1:
            place = b.Sub(b.Sub(begin, b.const(self.size)), number)
        else:
            place = number if self.stride == 1 else b.Mul(number, b.const(self.stride))
            place = place if self.start == 0 else b.Add(begin, place)
            place = b.Sub(place, b.const(self.size)) if self.stride < 0 else place
        if self.size == 1:
            return b.Unsqueeze(b.Gather(x, place, b.const(axis)), [axis])
        places = b.Add(b.Unsqueeze(place, [0]), b.const(list(range(self.size))))
        return b.Gather(x, places, b.const(axis))


def _number(text: str) -> str:
    """The id without zeros in front and the like: the reader has seen to it that it is a number."""
    return str(int(text))


def _size(b: Builder, x: Value, axis: int) -> Value:
    return b.Gather(b.Shape(x), b.const(axis), b.const(0))


def _joints(a: Attributes, name: str, kind: str) -> list[Joint]:
    return [Joint.of(e) for e in a.joints.get(name, ()) if e["kind"] == kind]


def _identified(values: Sequence[RawValue]) -> dict[str, int]:
    """Find the places of a body's inputs or outputs by the ids of their layers."""
    return {str(v.extras["id"]): i for i, v in enumerate(values)}


def _operand(joint: Joint, operands: Sequence[Value]) -> Value:
    return operands[int(joint.port)]


# ------------------------------------------------------------------------------- If
def join_branches(a: Attributes, operands: Sequence[Value]) -> None:
    """Arrange both bodies of an If by their port maps; they become `then_branch` and `else_branch`."""
    for name in ("then", "else"):
        body = getattr(a, f"{name}_body")
        keys, places = [v.key for v in body.inputs], _identified(body.inputs)
        section = f"{name}_port_map"
        joined = {keys[places[j.inner]]: _operand(j, operands) for j in _joints(a, section, "input")}
        results = {j.port: _identified(body.outputs)[j.inner] for j in _joints(a, section, "output")}
        given, needed = sum(port in results for port in a.ports), len(a.ports)
        arity = {"op": "If", "body": f"{name}_body", "given": given, "what": "outputs", "needed": needed}
        require(given == needed, codes.REGION_ARITY, **arity)
        body.arrange(joined, [results[port] for port in a.ports])
        setattr(a, f"{name}_branch", body)


# ----------------------------------------------------------------- Loop, TensorIterator
def read_loop(b: Builder, a: Attributes, count: Value, condition: Value, *operands: Value) -> Results:
    known = count.array
    runs: Value | None = as_scalar(b, as_i64(b, count))
    if known is None:
        runs = b.Where(b.Less(runs, b.const(0)), b.const(ENDLESS), runs)
    elif known.size == 1 and known.reshape(-1)[0] < 0:
        runs = None
    return _Iteration(b, a, (count, condition, *operands)).loop(runs, condition)


def read_tensor_iterator(b: Builder, a: Attributes, *operands: Value) -> Results:
    found = _Iteration(b, a, operands)
    cut = [j for j in found.inputs if j.axis is not None]
    runs = cut[0].count(b, _operand(cut[0], operands)) if cut else b.const(1)
    return found.loop(runs, None)


class _Iteration:
    """A body that runs again and again, while its layer is read."""

    def __init__(self, b: Builder, a: Attributes, operands: Sequence[Value]) -> None:
        self.b, self.operands, self.body, self.ports = b, operands, a.body, a.ports
        entries = _joints(a, "port_map", "input")
        edges = {_number(e["to-layer"]): _number(e["from-layer"]) for e in a.joints.get("back_edges", ())}
        self.numbers = [j for j in entries if j.port == "-1"]
        self.inputs = [j for j in entries if j.port != "-1"]
        self.cut = [j for j in self.inputs if j.axis is not None]
        self.carried = [j for j in self.inputs if j.axis is None and j.inner in edges]
        whole = [j for j in self.inputs if j.axis is None and j.inner not in edges]
        outputs = _joints(a, "port_map", "output")
        going = [j.inner for j in outputs if j.purpose == "execution_condition"]
        results, values = _identified(self.body.outputs), self.body.outputs
        self.sources = [results[edges[j.inner]] for j in self.carried]
        self.by_port = {j.port: j for j in outputs if j.port != "-1"}
        given, needed = sum(port in self.by_port for port in a.ports), len(a.ports)
        arity = {"op": "Loop", "body": "body", "given": given, "what": "outputs", "needed": needed}
        require(given == needed, codes.REGION_ARITY, **arity)
        # An output is the last value of what is carried, or is made of what each run gives.
        keys = [values[i].key for i in self.sources]
        self.lasts: dict[str, int] = {}
        self.rows: list[str] = []
        for port in self.ports:
            place = results[self.by_port[port].inner]
            if self.by_port[port].axis is None and values[place].key in keys:
                self.lasts[port] = keys.index(values[place].key)
            else:
                self.rows.append(port)
        self.conditional = bool(going)
        order = [*(results[i] for i in going[:1]), *self.sources, *(results[self.by_port[p].inner] for p in self.rows)]
        inputs = {str(v.extras["id"]): v for v in self.body.inputs}
        self.declared = {k: v.type for k, v in inputs.items()}
        self.body.arrange({inputs[j.inner].key: _operand(j, operands) for j in whole}, order)
        self.narrow: dict[str, bool] = {}

    def loop(self, count: Value | None, condition: Value | None) -> list[Value]:
        """Add the Loop.  Returns the results in the order of the layer's output ports."""
        initial = [_operand(j, self.operands) for j in self.carried]
        outside = [*(_operand(j, self.operands) for j in self.cut), *self.body.captures]
        made = loop(self.b, count, condition, initial, outside, self._region)
        rows = dict(zip(self.rows, made[len(initial) :], strict=True))
        return [made[self.lasts[p]] if p in self.lasts else self._together(p, rows[p]) for p in self.ports]

    def _region(self, types: Sequence[Type]) -> Graph:
        """Read the body for these types of what is carried, as a region of a Loop."""
        known: dict[str, Type] = {j.inner: t for j, t in zip(self.carried, types, strict=True)}
        for j in self.cut:
            x = _operand(j, self.operands).tensor
            axis = normal_axis("the port map", j.axis or 0, len(x.dims()))
            known[j.inner] = x.with_shape([*x.dims()[:axis], j.size, *x.dims()[axis + 1 :]])
        known |= {j.inner: self._counted(j) for j in self.numbers}
        ids = [str(v.extras["id"]) for v in self.body.inputs]
        region = self.body.read([known.get(i) or self.declared[i] for i in ids], self.body.captures)
        region.extras.pop("outputs", None)  # they are others than the file's
        inner = Builder(region, self.b.hint, self.b.loc)
        inputs = dict(zip(ids, region.inputs, strict=False))
        captures = region.inputs[len(ids) :]
        number, going = region.new_value("number", NUMBER), region.new_value("going", GOING)
        for j in self.numbers:
            counted = as_type(inner, number, self._counted(j).dtype)
            region.replace_uses(inputs[j.inner], inner.Unsqueeze(counted, [0]) if self._counted(j).rank else counted)
        wholes: list[Value] = []
        for j in self.cut:
            x = _operand(j, self.operands)
            wholes.append(region.new_value(x.name, x.type, contents=x.contents, assumed=x.assumed))
            region.replace_uses(inputs[j.inner], j.part(inner, wholes[-1], number))
        results = region.outputs
        stays = as_scalar(inner, results[0]) if self.conditional else going
        results = results[1:] if self.conditional else results
        carried, rows = results[: len(self.carried)], results[len(self.carried) :]
        region.inputs = [number, going, *(inputs[j.inner] for j in self.carried), *wholes, *captures]
        region.outputs = [stays, *carried, *(self._row(inner, p, v) for p, v in zip(self.rows, rows, strict=True))]
        region.prune()
        return region

    def _counted(self, joint: Joint) -> TensorType:
        """The type in which the body has the number of its run."""
        declared = self.declared.get(joint.inner)
        return declared if isinstance(declared, TensorType) and declared.dtype.is_integer else NUMBER

    def _row(self, b: Builder, port: str, value: Value) -> Value:
        """What a run gives for a result: a part of one element goes without its axis."""
        axis = self.by_port[port].axis
        if axis is None:
            return value
        axis = normal_axis("the port map", axis, len(value.shape))
        self.narrow[port] = value.shape[axis] == 1
        if not self.narrow[port]:
            return value
        node = value.producer
        if node is not None and node.op.name == "Unsqueeze" and (axes := node.inputs[1]) and axes.ints() == [axis]:
            assert node.inputs[0] is not None
            return node.inputs[0]
        return b.Squeeze(value, [axis])

    def _together(self, port: str, rows: Value) -> Value:
        """Put together what the runs gave, or take what the last gave."""
        joint, b = self.by_port[port], self.b
        if joint.axis is None:
            return b.Gather(rows, b.const(-1), b.const(0))
        rank = len(rows.shape) - (not self.narrow[port])
        axis = normal_axis("the port map", joint.axis, rank)
        found = laid(b, rows, axis, joint.stride < 0)
        if self.narrow[port]:
            return found
        sizes = found.shape
        merged = [*sizes[:axis], sizes[axis] * sizes[axis + 1], *sizes[axis + 2 :]]
        return b.Reshape(found, b.dims(merged), special_zero=False)


OPENVINO_LOOPS = (
    Form("TensorIterator", 1, attrs={}, sig=Sig("*operands: any -> *ys: any"), read=read_tensor_iterator),
    Form(
        "Loop",
        5,
        attrs={},
        sig=Sig("trip_count: I[one], execution_condition: bool[one], *operands?: any -> *ys: any", I={i32, i64}),
        read=read_loop,
    ),
)
"""The rows of TensorIterator and Loop."""
