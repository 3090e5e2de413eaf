"""How ONNX spells loops: Loop, Scan and SequenceMap, all of which are read as Loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

from irc.diagnostics import require
from irc.diagnostics.codes import operation as codes
from irc.ir.graph import Graph, Value
from irc.ir.types import SequenceType, TensorType, Type, boolean, dynamic, i64
from irc.opdef.base import Op
from irc.opdef.builder import Builder
from irc.opdef.codecs import Int, Ints, Region
from irc.opdef.conversions import as_scalar
from irc.opdef.forms import Attributes, Form, Results
from irc.opdef.regions import MADE, join
from irc.opdef.registry import find_op
from irc.opdef.run_sizes import TO_THE_END
from irc.opdef.signature import Sig
from irc.ops.layout import normal_axis
from irc.ops.sequence import one_of

ENDLESS = (1 << 63) - 1
"""The number of runs of a Loop without one."""
Step = Callable[[Builder, Value, Sequence[Value], Sequence[Value]], tuple[Sequence[Value], Sequence[Value]]]
"""step(b, number, carried, captured) builds one run of a Loop: what is carried on, and what it gives."""
NUMBER, GOING = TensorType.of(i64, ()), TensorType.of(boolean, ())


def widened(region: Graph, types: Sequence[Type], made: set[str]) -> list[Type]:
    """Find the types that hold the carried values before and after each run of a Loop's body.

    types: those before it, by which its own were inferred.  made: gets the names of sizes that no longer are what they
    were at the start.
    """
    pairs = zip(types, region.outputs[1:], strict=False)
    return [join("Loop", before, v.type or TensorType(dynamic, None), "carried", made) for before, v in pairs]


def loop(
    b: Builder,
    count: Value | None,
    condition: Value | None,
    initial: Sequence[Value],
    captured: Sequence[Value],
    body: Callable[[Sequence[Type]], Graph],
) -> tuple[Value, ...]:
    """Add a Loop.  `body` makes its region for these types of what is carried; it is asked until they hold."""
    types: list[Type] = [v.type or TensorType(dynamic, None) for v in initial]
    made: set[str] = set()
    while True:
        region = body(types)
        grown = widened(region, types, made)
        if grown == types:
            break
        types = grown
    region.extras[MADE] = made
    count = None if count is None else as_scalar(b, count)
    condition = None if condition is None else as_scalar(b, condition)
    make = cast("Callable[..., Op]", find_op("Loop"))
    return b.add_all(make(body=region, carried=len(initial)), count, condition, *initial, *captured)


def repeated(
    b: Builder, count: Value, initial: Sequence[Value], captured: Sequence[Value], step: Step
) -> tuple[Value, ...]:
    """Add a Loop of `count` runs.  Returns what is carried at the end, and what each run gave."""

    def body(types: Sequence[Type]) -> Graph:
        region, number, going = start_body("body")
        carried = [region.add_input(v.name, t) for v, t in zip(initial, types, strict=True)]
        given = [region.add_input(v.name, v.type, contents=v.contents, assumed=v.assumed) for v in captured]
        after, rows = step(Builder(region, b.hint, b.loc), number, carried, given)
        region.outputs = [going, *after, *rows]
        return region

    return loop(b, count, None, initial, captured, body)


# ----------------------------------------------------------------------------- Loop
def read_loop(
    b: Builder, a: Attributes, count: Value | None = None, condition: Value | None = None, *initial: Value
) -> Results:
    inputs, outputs = len(a.body.inputs), len(a.body.outputs)
    facts = {"op": "Loop", "body": "body"}
    needed = 2 + len(initial)
    require(inputs == needed, codes.REGION_ARITY, given=inputs, what="inputs", needed=needed, **facts)
    needed = 1 + max(len(initial), a.outputs)
    require(outputs >= needed, codes.REGION_ARITY, given=outputs, what="outputs", needed=needed, **facts)

    def body(types: Sequence[Type]) -> Graph:
        region = a.body.read((NUMBER, GOING, *types), a.body.captures)
        region.outputs[0] = as_scalar(Builder(region, "condition"), region.outputs[0])
        return region

    return loop(b, count, condition, initial, a.body.captures, body)


# ----------------------------------------------------------------------------- Scan
@dataclass(frozen=True)
class Scanned:
    """What a Scan runs along: the axis of each scanned operand and result, and which of them go backwards."""

    axes: tuple[int, ...]
    backwards: tuple[bool, ...]
    result_axes: tuple[int, ...]
    results_backwards: tuple[bool, ...]

    @staticmethod
    def of(a: Attributes, scanned: int, results: int) -> Scanned:
        def numbers(name: str, count: int) -> tuple[int, ...]:
            given = tuple(getattr(a, name, ()) or (0,) * count)
            facts = {"op": "Scan", "attribute": name, "given": len(given), "needed": count}
            require(len(given) == count, codes.ATTRIBUTE_LENGTH, **facts)
            return given

        return Scanned(
            numbers("scan_input_axes", scanned),
            tuple(map(bool, numbers("scan_input_directions", scanned))),
            numbers("scan_output_axes", results),
            tuple(map(bool, numbers("scan_output_directions", results))),
        )


def read_scan(b: Builder, a: Attributes, *operands: Value) -> Results:
    states, scanned = _operands(a, operands)
    along = Scanned.of(a, len(scanned), len(a.body.outputs) - len(states))
    return scan(b, a, states, scanned, along, a.body.captures)


def read_scan_8(b: Builder, a: Attributes, lengths: Value | None, *operands: Value) -> Results:
    """Read the first Scan, whose operands have a batch in front: a loop over it around that along the second axis.

    Of a sequence that is shorter than others, states stay as they are behind its end.
    """
    states, scanned = _operands(a, operands)
    results = len(a.body.outputs) - len(states)
    backwards = tuple(map(bool, a.directions or (0,) * len(scanned)))
    along = Scanned((0,) * len(scanned), backwards, (0,) * results, (False,) * results)
    outside = [*states, *scanned, *([] if lengths is None else [lengths]), *a.body.captures]

    def body(types: Sequence[Type]) -> Graph:
        region, number, going = start_body("batch")
        inner = Builder(region, b.hint, b.loc)
        given = [region.add_input(v.name, v.type, contents=v.contents, assumed=v.assumed) for v in outside]
        rows = [inner.Gather(v, number, inner.const(0)) for v in given[: len(operands)]]
        length = None if lengths is None else inner.Gather(given[len(operands)], number, inner.const(0))
        captured = given[len(outside) - len(a.body.captures) :]
        made = scan(inner, a, rows[: len(states)], rows[len(states) :], along, captured, length)
        region.outputs = [going, *made]
        return region

    count = b.Gather(b.Shape(scanned[0]), b.const(0), b.const(0))
    return loop(b, count, None, (), outside, body)


def _operands(a: Attributes, operands: Sequence[Value]) -> tuple[list[Value], list[Value]]:
    """Part the operands into states and what is scanned."""
    count = int(a.num_scan_inputs)
    facts = {"op": "Scan", "attribute": "num_scan_inputs", "value": count, "expected": f"1..{len(operands)}"}
    require(1 <= count <= len(operands), codes.ATTRIBUTE_RANGE, **facts)
    states = len(operands) - count
    for what, given, needed in (
        ("inputs", len(a.body.inputs), len(operands)),
        ("outputs", len(a.body.outputs), max(states, a.outputs)),
    ):
        fits = given == needed if what == "inputs" else given >= needed
        require(fits, codes.REGION_ARITY, op="Scan", body="body", given=given, what=what, needed=needed)
    return list(operands[:states]), list(operands[states:])


def start_body(name: str) -> tuple[Graph, Value, Value]:
    """Start the body of a Loop.  Returns it, the number of its run, and its condition."""
    region = Graph(name)
    return region, region.add_input("number", NUMBER), region.add_input("going", GOING)


def scan(
    b: Builder,
    a: Attributes,
    states: Sequence[Value],
    scanned: Sequence[Value],
    along: Scanned,
    captured: Sequence[Value],
    length: Value | None = None,
) -> list[Value]:
    """Add the Loop that a Scan is.  `captured` stand for what the body captures; states stay behind `length` runs."""
    axes = [normal_axis("Scan", axis, v.rank or 0) for axis, v in zip(along.axes, scanned, strict=True)]
    count = b.Gather(b.Shape(scanned[0]), b.const(axes[0]), b.const(0))
    outside = [*scanned, *captured, *([] if length is None else [length])]

    def body(types: Sequence[Type]) -> Graph:
        elements = [v.tensor.with_shape([*v.shape[:x], *v.shape[x + 1 :]]) for v, x in zip(scanned, axes, strict=True)]
        region = a.body.read((*types, *elements), a.body.captures)
        inner = Builder(region, b.hint, b.loc)
        carried, taken = region.inputs[: len(states)], region.inputs[len(states) : len(states) + len(scanned)]
        number = region.new_value("number", NUMBER)
        going = region.new_value("going", GOING)
        whole = [region.new_value(v.name, v.type, contents=v.contents, assumed=v.assumed) for v in scanned]
        for element, v, axis, backwards in zip(taken, whole, axes, along.backwards, strict=True):
            place = number
            if backwards:
                last = inner.Sub(inner.Gather(inner.Shape(v), inner.const(axis), inner.const(0)), inner.const(1))
                place = inner.Sub(last, number)
            region.replace_uses(element, inner.Gather(v, place, inner.const(axis)))
        ends = [] if length is None else [region.new_value("length", length.type)]
        results = region.outputs
        if ends:
            stays = inner.Less(number, inner.Cast(ends[0], to=i64))
            kept = [inner.Where(stays, new, old) for new, old in zip(results, carried, strict=False)]
            results = [*kept, *results[len(states) :]]
        region.inputs = [number, going, *carried, *whole, *region.inputs[len(states) + len(scanned) :], *ends]
        region.outputs = [going, *results]
        return region

    made = loop(b, count, None, states, outside, body)
    stacked = made[len(states) :]
    turned = zip(stacked, along.result_axes, along.results_backwards, strict=True)
    return [*made[: len(states)], *(laid(b, v, axis, backwards) for v, axis, backwards in turned)]


def laid(b: Builder, value: Value, axis: int, backwards: bool) -> Value:
    """Turn a stacked result around and move its first axis to where it belongs."""
    if backwards:
        value = b.Slice(value, b.const([-1]), b.const([-TO_THE_END]), b.const([0]), b.const([-1]))
    rank = value.rank or 0
    axis = normal_axis("Scan", axis, rank)
    order = [*range(1, axis + 1), 0, *range(axis + 1, rank)]
    return value if axis == 0 else b.Transpose(value, order)


# ---------------------------------------------------------------------- SequenceMap
def read_sequence_map(b: Builder, a: Attributes, *operands: Value) -> Results:
    """Read a SequenceMap: a Loop that inserts what the body gives at the end of each result."""
    needed = {"inputs": len(operands), "outputs": max(a.outputs, 1)}
    for what, given in (("inputs", len(a.body.inputs)), ("outputs", len(a.body.outputs))):
        fits = given == needed[what] if what == "inputs" else given >= needed[what]
        require(fits, codes.REGION_ARITY, op="SequenceMap", body="body", given=given, what=what, needed=needed[what])
    captured, results = a.body.captures, len(a.body.outputs)
    elements = [one_of("SequenceMap", v) if isinstance(v.type, SequenceType) else v.tensor for v in operands]
    made = a.body.read(elements, captured).outputs
    initial = [b.SequenceEmpty(dtype=v.dtype) for v in made]

    def body(types: Sequence[Type]) -> Graph:
        region = a.body.read(elements, captured)
        inner = Builder(region, b.hint, b.loc)
        number, going = region.new_value("number", NUMBER), region.new_value("going", GOING)
        taken = region.inputs[: len(operands)]
        whole = [region.new_value(v.name, v.type, contents=v.contents, assumed=v.assumed) for v in operands]
        for element, v in zip(taken, whole, strict=True):
            region.replace_uses(element, inner.SequenceAt(v, number) if isinstance(v.type, SequenceType) else v)
        carried = [region.new_value(v.name, t) for v, t in zip(region.outputs, types, strict=True)]
        region.outputs = [going, *(inner.SequenceInsert(c, v) for c, v in zip(carried, region.outputs, strict=True))]
        region.inputs = [number, going, *carried, *whole, *region.inputs[len(operands) :]]
        return region

    require(isinstance(operands[0].type, SequenceType), codes.NOT_A_SEQUENCE, op="SequenceMap", type=operands[0].type)
    count = b.SequenceLength(operands[0])
    return loop(b, count, None, initial, [*operands, *captured], body)[:results]


SCAN = {
    "body": Region(),
    "num_scan_inputs": Int(),
    "scan_input_axes": Ints(()),
    "scan_input_directions": Ints(()),
    "scan_output_axes": Ints(()),
    "scan_output_directions": Ints(()),
}
LOOPS = (
    Form("Loop", 1, attrs={"body": Region()}, read=read_loop),
    *(Form("Loop", since) for since in (11, 13, 16, 19, 21, 23, 24, 25)),
    Form(
        "Scan",
        8,
        attrs={"body": Region(), "num_scan_inputs": Int(), "directions": Ints(())},
        sig=Sig("lengths?: i64, *operands: any -> *ys: any"),
        read=read_scan_8,
    ),
    Form("Scan", 9, attrs=SCAN, sig=Sig("*operands: any -> *ys: any"), read=read_scan),
    *(Form("Scan", since) for since in (11, 16, 19, 21, 23, 24, 25)),
    Form("SequenceMap", 17, attrs={"body": Region()}, sig=Sig("*operands: any -> *ys: any"), read=read_sequence_map),
)
"""The rows of Loop, Scan and SequenceMap."""
