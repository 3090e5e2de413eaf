"""Operations that run graphs: If and Loop.  Scan and SequenceMap are read as Loops (`irc.ops.loop_forms`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from irc.diagnostics import require
from irc.diagnostics.codes import operation as codes
from irc.ir.dim import Dim
from irc.ir.graph import Graph, Value
from irc.ir.types import SequenceType, TensorType, Type, boolean, dynamic, i64
from irc.opdef.base import Op, op
from irc.opdef.builder import Builder
from irc.opdef.codecs import Region
from irc.opdef.conversions import as_scalar
from irc.opdef.forms import Attributes, Form, Results
from irc.opdef.regions import MADE, capture, infer_region, join, run_region, splice
from irc.opdef.signature import Sig
from irc.ops.control_openvino import OPENVINO_LOOPS, join_branches
from irc.ops.layout import behind_identities
from irc.ops.loop_forms import ENDLESS, LOOPS, widened


# ------------------------------------------------------------------------------- If
def read_if(b: Builder, a: Attributes, condition: Value) -> Results:
    """Read an If; of one whose condition is known, only the body that runs, in its place.

    Where the reader allows it, the same is done with the body that can run where the other alone cannot.
    """
    known = known_condition(condition)
    if known is not None:
        body = a.then_branch if known else a.else_branch
        return splice(b, body.read((), body.captures), body.captures)
    bodies = (a.then_branch, a.else_branch)
    captured = list(dict.fromkeys(v for body in bodies for v in body.captures))
    regions = [body.read((), captured) for body in bodies]
    refused = [body for body in bodies if body.may_be_left_out]
    if len(refused) == 1:
        refused[0].leave_out()
        body = next(body for body in bodies if body not in refused)
        return splice(b, body.read((), body.captures), body.captures)
    for name, region in zip(("then_branch", "else_branch"), regions, strict=True):
        given = len(region.outputs)
        require(
            given >= a.outputs, codes.REGION_ARITY, op="If", body=name, given=given, what="outputs", needed=a.outputs
        )
    first, second = regions
    count = min(len(first.outputs), len(second.outputs))
    first.outputs, second.outputs = first.outputs[:count], second.outputs[:count]
    return b.add_all(If(first, second), as_scalar(b, condition), *captured)


def read_if_openvino(b: Builder, a: Attributes, condition: Value, *operands: Value) -> Results:
    join_branches(a, (condition, *operands))
    return read_if(b, a, condition)


def known_condition(condition: Value) -> bool | None:
    """Tell whether a condition holds; None if only the run tells."""
    known = condition.array
    return None if known is None or known.size != 1 else bool(known.reshape(-1)[0])


def known_region(op: If, condition: Value) -> Graph | None:
    """Find the region of an If that runs; None if only the run tells."""
    known = known_condition(condition)
    return None if known is None else op.then if known else op.otherwise


@op
class If(Op):
    """The results of `then` if the condition holds, else those of `otherwise`.

    Both regions have all captured values as their inputs.
    """

    then: Graph
    otherwise: Graph
    sig = Sig("condition: bool[one], *captures?: any -> *ys: any")

    def infer(self, condition: Value, *captures: Value) -> list[Type]:
        found: list[list[Type]] = []
        known = known_region(self, condition)
        for region in self.regions if known is None else (known,):
            capture(region.inputs, captures)
            found.append(infer_region(region))
        return [join("If", x, y, "branch") for x, y in zip(found[0], found[-1], strict=True)]

    def reference(self, condition: Any, *captures: Any) -> Any:
        return run_region(self.then if condition else self.otherwise, captures)

    onnx = (
        Form(
            "If",
            1,
            attrs={"then_branch": Region(), "else_branch": Region()},
            sig=Sig("condition: bool[one] -> *ys: any"),
            read=read_if,
        ),
        Form("If", 11),
        Form("If", 13),
        Form("If", 16),
        Form("If", 19),
        Form("If", 21),
        Form("If", 23),
        Form("If", 24),
        Form("If", 25),
    )
    openvino = (
        Form(
            "If",
            8,
            attrs={},
            sig=Sig("execution_condition: bool[one], *operands?: any -> *ys: any"),
            read=read_if_openvino,
        ),
    )


# ----------------------------------------------------------------------------- Loop
@op
class Loop(Op):
    """The carried values after `count` runs of the body, or fewer if its condition ends it, and what each run gave.

    Operands are the initial values of what is carried, then captured values.  The body's inputs: the number of the run,
    the condition, the carried values, the captured ones; its outputs: whether to go on, the carried values, and
    what is stacked along a new first axis.  `counted`: which carried value, if any, is the number of runs.
    """

    body: Graph
    carried: int
    counted: int | None = None
    sig = Sig("count?: i64[one], condition?: bool[one], *operands?: any -> *ys: any")

    def infer(self, count: Value | None = None, condition: Value | None = None, *operands: Value) -> list[Type]:
        body, n = self.body, self.carried
        number, going, *inner = body.inputs
        number.type, going.type = TensorType.of(i64, ()), TensorType.of(boolean, ())
        capture(inner[n:], operands[n:])
        made: set[str] = body.extras.setdefault(MADE, set())
        types = [
            _as_before(v.type or TensorType(dynamic, None), x.type, made) for v, x in zip(operands, inner, strict=False)
        ]
        types = types[:n]
        while True:
            for value, type in zip(inner[:n], types, strict=True):
                value.type, value.contents = type, None
            results = infer_region(body)
            grown = widened(body, types, made)
            if grown == types:
                break
            types = grown
        require(count is not None or not self.never_ends_early(condition), codes.ENDLESS_LOOP)
        runs = self.runs(count, condition)
        return [*types, *(_stacked(runs, t) for t in results[1 + n :])]

    def runs(self, count: Value | None, condition: Value | None) -> Dim:
        """Find how often the body runs: a symbol if its condition decides."""
        known = None if count is None else count.dims()
        most = None if known is None else known[0].maximum(0)
        if most is not None and most.bounds()[1] >= ENDLESS:
            most = None
        if most is not None and self.never_ends_early(condition):
            return most
        return Dim.fresh("runs", most)

    def never_ends_early(self, condition: Value | None) -> bool:
        """Tell whether the condition holds at the start and after each run."""
        return (condition is None or _is_true(condition)) and self.goes_on()

    def goes_on(self) -> bool:
        """Tell whether the body leaves the condition as it is."""
        going = behind_identities(self.body.outputs[0])
        return going is self.body.inputs[1] or _is_true(going)

    def reference(self, count: Any = None, condition: Any = None, *operands: Any) -> Any:
        carried, captured = list(operands[: self.carried]), operands[self.carried :]
        most = ENDLESS if count is None else int(count)
        going = True if condition is None else bool(condition)
        stacked: list[list[Any]] = [[] for _ in self.body.outputs[1 + self.carried :]]
        number = 0
        while going and number < most:
            arguments = [np.array(number, np.int64), np.array(going), *carried, *captured]
            going, *results = run_region(self.body, arguments)
            carried = results[: self.carried]
            for rows, row in zip(stacked, results[self.carried :], strict=True):
                rows.append(row)
            number += 1
        made = [v.type for v in self.body.outputs[1 + self.carried :]]
        return [*carried, *(_stack(rows, t) for rows, t in zip(stacked, made, strict=True))]

    onnx = LOOPS
    openvino = OPENVINO_LOOPS


def _is_true(value: Value) -> bool:
    array = value.array
    return array is not None and bool(array.all())


def _as_before(initial: Type, inner: Type | None, made: set[str]) -> Type:
    """Type a carried value like its initial value, but for the sizes that the body is known to change."""
    if not isinstance(initial, TensorType) or not isinstance(inner, TensorType) or initial.rank != inner.rank:
        return inner if isinstance(initial, SequenceType) and initial.empty and inner is not None else initial
    sizes = zip(initial.shape or (), inner.shape or (), strict=True)
    shape = tuple(y if (s := y.symbol_alone()) and s.name in made else x for x, y in sizes)
    return initial if initial.shape is None else TensorType(initial.dtype, shape)


def _stacked(runs: Dim, type: Type) -> Type:
    if not isinstance(type, TensorType):
        return SequenceType(type)
    return TensorType(type.dtype, None if type.shape is None else (runs, *type.shape))


def _stack(rows: Sequence[Any], type: Type | None) -> Any:
    """Stack what the runs gave; without any, sizes that only a run tells are 0."""
    if rows or not isinstance(type, TensorType):
        return np.stack(rows)
    return np.zeros((0, *(d.const or 0 for d in type.shape or ())), type.dtype.numpy)


def body_layout(op: Op) -> tuple[int, int, tuple[str, ...]]:
    """Find how ONNX has an If or a Loop.

    Returns how many operands are its own, how many inputs of its bodies are not captured values, and the attributes
    that hold the bodies.
    """
    if isinstance(op, Loop):
        return 2 + op.carried, 2 + op.carried, ("body",)
    assert isinstance(op, If), f"{op.name} has regions and is no If"
    return 1, 0, ("then_branch", "else_branch")
