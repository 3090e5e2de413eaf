"""The manifest of a graph: names, types and sizes of its inputs and outputs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from irc.backends.c.names import prefix_of
from irc.ir.dim import Dim, Func, Symbol, product
from irc.ir.graph import Graph, Model, Value, layers_of, symbols_of
from irc.ir.relation import SizeConstraint
from irc.ir.string_marks import STRING
from irc.ir.types import MapType, OptionalType, SequenceType, TensorType, Type, string
from irc.loops.ir import Buffer, Program
from irc.passes.pack_sequences import PACKED
from irc.passes.size_constraints import recorded
from irc.version import VERSION

if TYPE_CHECKING:
    from irc.backends.numpy.groups import Group


def describe(model: Model, graph: Graph, backend: str, program: Program | None = None) -> dict[str, Any]:
    """Describe what the executor needs: name, prefix, inputs, outputs, symbols, demands; neither files nor target.

    A lowered program decides the order of the symbols, and how many of the graph's first inputs and outputs are
    the model's (the others stand for variables).
    """
    inputs = graph.inputs if program is None else graph.inputs[: len(program.inputs)]
    outputs = graph.outputs if program is None else graph.outputs[: len(program.outputs)]
    found = symbols_of(inputs)
    limits = [] if program is None else program.limits
    given = {name: i for i, name in enumerate(found if program is None else program.symbols)}
    bounded = given | {s.symbol.name: i for i, s in enumerate(limits, len(given))}
    return packed(graph) | {
        "name": model.graph.name or "model",
        "prefix": prefix_of(model.graph.name),
        "backend": backend,
        "irc": VERSION,
        "inputs": [port(v, given) for v in inputs],
        "outputs": [_output(v, given, bounded, program) for v in outputs],
        "symbols": [_symbol(found[name]) for name in given],
        "limits": [s.value for s in limits],
        "demands": [
            size_constraint(d, given)
            for d in (program.constraints if program is not None else recorded(graph))
            if all(s.name in given for s in d.symbols())
        ],
    }


def packed(graph: Graph) -> dict[str, Any]:
    """Describe the sequences and optional values that tensors stand for (`irc.passes.pack_sequences`), if any.

    Each row is that of the model's input or output, with its structure as `irc.runtime.packing` reads it.
    """
    if PACKED not in graph.extras:
        return {}
    rows = [[port(v, {}) | {"structure": _structure(v.type)} for v, _ in part] for part in graph.extras[PACKED]]
    return {"packed": {"inputs": rows[0], "outputs": rows[1]}}


def _structure(type: Type | None) -> list[Any]:
    """Describe a type as nested lists: "optional" or "sequence" and what is inside, "tensor" and its sizes, "map" and
    the element types of its keys and values, "maps" (a sequence of them)."""
    if isinstance(type, OptionalType):
        return ["optional", _structure(type.element)]
    if isinstance(type, MapType):
        assert isinstance(type.value, TensorType)
        return ["map", type.key.name, type.value.dtype.name]
    if isinstance(type, SequenceType):
        if isinstance(type.element, MapType):
            return ["maps"]
        assert isinstance(type.element, TensorType)
        return ["sequence", len(type.element.shape or ())]
    assert isinstance(type, TensorType)
    return ["tensor", [d.const or 0 for d in type.shape or ()]]


def port(value: Value, symbols: dict[str, int]) -> dict[str, Any]:
    """Make a row of the manifest's inputs or outputs, with sizes as expressions over d0, d1, …"""
    kind, tensor = _kind(_as_given(value))
    shape = tensor.shape if tensor is not None and kind == "tensor" else None
    known = shape is not None and all(s.name in symbols for d in shape for s in d.symbols())
    return {
        "name": value.name,
        "names": list(value.names),
        "layer": str(value.extras.get("layer_name", "") or ""),
        "kind": kind,
        "type": str(_as_given(value)),
        "dtype": tensor.dtype.name if tensor is not None else "dynamic",
        "shape": None if shape is None else [int(d) if d.is_const else str(d) for d in shape],
        "sizes": [size(d, symbols) for d in shape] if shape is not None and known else None,
    }


def _output(value: Value, given: dict[str, int], bounded: dict[str, int], program: Program | None) -> dict[str, Any]:
    """Describe an output.  One whose size the run computes has the bounds of its sizes, or of their product."""
    row = port(value, given)
    if program is None or row["shape"] is None or row["sizes"] is not None:
        return row
    shape = value.shape[:-1] if STRING in value.extras else value.shape
    most = [program.capacity.of(d) for d in shape]
    whole = program.capacity.of(product(shape))
    row["max_sizes"] = [size(d, bounded) for d in (most if product(most) == whole else [whole])]
    return row


def _as_given(value: Value) -> Type | None:
    """Return the type of a value as callers know it: strings for the pairs that stand for them."""
    if STRING not in value.extras:
        return value.type
    return TensorType(string, value.shape[:-1])


def _kind(type: Type | None) -> tuple[str, TensorType | None]:
    """Return the kind of a value, and the tensor inside."""
    if type is None or isinstance(type, TensorType):
        return "tensor", type
    if isinstance(type, MapType):
        return "map", None
    kind = "sequence" if isinstance(type, SequenceType) else "optional"
    inner: Type | None = type
    while isinstance(inner, SequenceType | OptionalType):
        inner = inner.element
    return kind, inner if isinstance(inner, TensorType) else None


def _symbol(dim: Dim) -> dict[str, Any]:
    (symbol,) = dim.symbols()
    return {"name": symbol.name, "lo": symbol.lo, "hi": symbol.hi}


def size(dim: Dim, symbols: dict[str, int]) -> int | str:
    """Write a size as a number or an expression that `irc.runtime.ports.size_code` reads."""
    if dim.is_const:
        return int(dim)
    terms: list[str] = []
    for monomial, c in dim.terms:
        factors = [_atom(a, symbols) for a in monomial]
        terms.append("*".join([*([f"({c})"] if c != 1 or not factors else []), *factors]))
    return " + ".join(terms)


def size_constraint(found: SizeConstraint, symbols: dict[str, int]) -> dict[str, Any]:
    """Describe a size constraint as `irc.runtime.ports.SizeConstraint` reads it."""
    return {
        "holds": found.relation.text(lambda d: str(size(d, symbols)), {"and": "and", "or": "or"}),
        "code": found.code.id,
        "message": found.message,
        "where": found.where,
    }


def _atom(atom: Symbol | Func, symbols: dict[str, int]) -> str:
    if isinstance(atom, Symbol):
        return f"d{symbols[atom.name]}"
    return f"{atom.op}({', '.join(str(size(a, symbols)) for a in atom.args)})"


# ------------------------------------------------------------------------------ profiles
def profile_of_program(program: Program) -> list[dict[str, Any]]:
    """Make a row for each function in the order they run: its layers and kernels, and its work as size expressions.

    `executed`: operations that the processor executes for each that is counted.
    """
    from irc.loops.work import work_of

    symbols = {name: i for i, name in enumerate(program.symbols)}
    rows: list[dict[str, Any]] = []
    for f in program.functions:
        work = work_of(f)
        kernels = [
            {"symbol": k.symbol, "flops": _size_or_none(k.flops, symbols), "executed": k.executed} for k in work.kernels
        ]
        rows.append(
            {
                "function": f.name,
                "layers": list(f.origin),
                "kernels": kernels,
                "flops": _size_or_none(work.flops, symbols),
                "read": _size_or_none(work.read, symbols),
                "written": _size_or_none(work.written, symbols),
                "operands": _types(b.root for b in f.reads),
                "results": _types(b.root for b in f.writes),
            }
        )
    return rows


def profile_of_groups(groups: Sequence[Group], graph: Graph) -> list[dict[str, Any]]:
    """Make the same rows for the groups of a NumPy module, whose operations are not counted."""
    symbols = {name: i for i, name in enumerate(symbols_of(graph.inputs))}
    return [
        {
            "function": "+".join(dict.fromkeys(n.op.name for n in g.nodes)),
            "layers": list(layers_of(g.nodes)) or [g.root.name],
            "kernels": [],
            "flops": None,
            "read": _bytes(g.operands, symbols),
            "written": _bytes(g.root.outputs, symbols),
            "operands": [str(v.type) for v in g.operands],
            "results": [str(v.type) for v in g.root.outputs],
        }
        for g in groups
    ]


def _types(buffers: Iterable[Buffer]) -> list[str]:
    """Write the types of buffers, each buffer once."""
    return [str(TensorType(b.dtype, b.shape)) for b in dict.fromkeys(buffers)]


def _bytes(values: Sequence[Value], symbols: dict[str, int]) -> int | str | None:
    """Add up the bytes of all tensors; None if a size is not known."""
    total = Dim.of(0)
    for v in values:
        if not isinstance(v.type, TensorType) or v.type.shape is None:
            return None
        total = total + product(v.type.shape) * v.dtype.itemsize
    return _size_or_none(total, symbols)


def _size_or_none(dim: Dim | None, symbols: dict[str, int]) -> int | str | None:
    if dim is None or any(s.name not in symbols for s in dim.symbols()):
        return None
    return size(dim, symbols)
