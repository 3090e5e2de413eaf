"""The NumPy backend: a model as a standalone Python module that needs numpy (and ml_dtypes for such types).

The module has a function for each distinct operation, one for each distinct chain of elementwise
operations, and `run(inputs)`, which calls them in order.  Constants of more than a few elements are
mapped from `weights.bin` beside it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from irc.backends.numpy import regions
from irc.backends.numpy.data import data_decide, sizes_of_inputs
from irc.backends.numpy.facts import OTHER, Fact, Items
from irc.backends.numpy.functions import Library, Written
from irc.backends.numpy.groups import ChainWriter, Group, call, fact_of, grouped, is_elementwise, typed
from irc.backends.numpy.lines import WIDTH, wrapped
from irc.backends.numpy.literals import array_literal, dtype_text
from irc.backends.numpy.text import PyComment, PyDocstring, PyName
from irc.diagnostics import Problem, Sink
from irc.diagnostics.codes import runtime_io as codes
from irc.diagnostics.core import CompileError
from irc.ir.dim import Dim, Func, Symbol
from irc.ir.file_names import member_names
from irc.ir.graph import Graph, Node, Value
from irc.ir.limits import LARGEST_SIZE
from irc.ir.types import TensorType, string
from irc.opdef.base import Op
from irc.opdef.opaque import Opaque
from irc.ops.shape import DimVector
from irc.ops.state import Assign, ReadValue
from irc.passes.inline import decompose_where
from irc.passes.size_constraints import IMPOSSIBLE

INLINE_LIMIT = 16
"""Constants up to this many elements are written into the source."""
ALIGNMENT = 64


@dataclass(frozen=True)
class Options:
    """weights: "file" (weights.bin beside the module) or "embed" (base64 inside it).  profile: `run` notes the time
    around every group in TIMES (nanoseconds)."""

    weights: str = "file"
    version: str = ""
    profile: bool = False


@dataclass
class Emitted:
    """The module's source, the arrays of weights.bin at their offsets, and the groups that `run` computes in order."""

    source: str
    weights: list[tuple[int, np.ndarray[Any, Any]]] = field(default_factory=list[Any])
    groups: list[Group] = field(default_factory=list[Group])

    def weight_chunks(self) -> list[bytes | memoryview]:
        """Split the content of weights.bin into chunks, in file order."""
        chunks: list[bytes | memoryview] = []
        end = 0
        for offset, array in self.weights:
            chunks.append(bytes(offset - end))
            flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
            chunks.append(flat.data)
            end = offset + flat.nbytes
        return chunks


def emit(graph: Graph, name: str, options: Options | None = None) -> Emitted:
    """Emit the module of a typed graph, which is changed (operations without a reference are decomposed).

    Raises CompileError with every operation that cannot be written.
    """
    sink = Sink()
    for each in graph.nested():
        decompose_where(each, lambda n: type(n.op).reference is Op.reference and n.op.decompose is not None, sink)
    writer = ModuleWriter(graph, name, options or Options(), sink)
    with np.errstate(all="ignore"):  # what is known is computed
        source = writer.text()
    sink.stop_on_errors(CompileError)
    return Emitted(source, writer.weights, writer.groups)


class ModuleWriter:
    """Writes the text of one module; a copy of it writes each function that is the body of a region."""

    def __init__(self, graph: Graph, name: str, options: Options, sink: Sink) -> None:
        self.graph, self.name, self.options, self.sink = graph, name, options, sink
        self.groups: list[Group] = []
        self.library = Library()
        self.chains = ChainWriter(self.library)
        self.weights: list[tuple[int, np.ndarray[Any, Any]]] = []
        self.constants: list[str] = []
        self.locals: dict[Value, PyName] = {}
        self.shared: dict[int, PyName] = {}
        self.taken = self.library.taken
        self.taken |= {"inputs", "state", "os", "math", "INPUTS", "OUTPUTS", "DECIDED_BY_DATA"}
        self.taken |= {"time", "TIMES"} if options.profile else set()
        self.sizes: dict[str, PyName] = {}  # symbol → variable
        self.by_data: dict[PyName, tuple[str, str]] = {}  # first result of a group that data may not fit → its place
        self.following: list[str] = []  # what sets the variables at the end of a run
        self.results = set(graph.outputs)
        self.needs_sizes = any(isinstance(n.op, DimVector) for n in graph.nodes)
        self.stateful = any(isinstance(n.op, ReadValue | Assign) for n in graph.nodes)

    # -------------------------------------------------------------------- the module
    def text(self) -> str:
        body = self._run()
        loader = [self._weight_loader()] if self.weights else []
        functions = self.library.ordered()
        constants = self.library.used_constants(functions)
        for text in (body, *self.constants, *constants, *functions):
            self.library.note(text)
        text = "\n".join((body, *loader, *self.constants, *constants, *functions))
        used = {line for name, line in self.library.imports.items() if re.search(rf"\b{name.split('.')[-1]}\b", text)}
        imports = "\n".join(sorted({"import numpy as np", *used}, key=_import_order))
        parts = [self._head(), imports, self._metadata(), *loader]
        if self.options.profile:
            parts.append(f"TIMES = [0] * {len(self.groups) + 2}")
        if self.by_data:
            parts.append(self._decided_by_data())
        if constants or self.constants:
            parts.append(wrapped("\n".join([*constants, *self.constants])))
        main = _MAIN.format(state=", {}" if self.stateful else "", members=self._members())
        state = [_STATE] if self.stateful else []
        blocks = ["\n\n".join(parts), *functions, *state, body, main]
        return "\n\n\n".join(b.strip("\n") for b in blocks) + "\n"

    def _head(self) -> PyDocstring:
        made = f" by irc {self.options.version}" if self.options.version else ""
        usage = "Call run(inputs); as a script: python model.py IN.npz OUT.npz."
        return PyDocstring("", self.name, f": generated{made}.  {usage}")

    def _metadata(self) -> str:
        def rows(values: list[Value]) -> str:
            return "".join(f"    ({v.name!r}, {str(v.type)!r}),\n" for v in values)

        return f"INPUTS = [\n{rows(self.graph.inputs)}]\nOUTPUTS = [\n{rows(self.graph.outputs)}]"

    def _decided_by_data(self) -> str:
        """Write the table that tells whoever runs the module what a failure in `run` means."""
        rows = "".join(f"    {str(name)!r}: {place!a},\n" for name, place in self.by_data.items())
        comment = "# The operations of which only the data of a run show whether they fit."
        return f"{comment}\nDECIDED_BY_DATA = {{\n{rows}}}"

    def _members(self) -> str:
        """Write the names of the outputs in an archive."""
        names = [v.name for v in self.graph.outputs]
        members = member_names(names)
        return "[name for name, _ in OUTPUTS]" if members == names else repr(members)

    def _weight_loader(self) -> str:
        self.library.imports.setdefault("math", "import math")
        if self.options.weights == "file":
            self.library.imports.setdefault("os", "import os")
        return _LOADER.format(storage=self._storage())

    def _storage(self) -> str:
        if self.options.weights == "embed":
            import base64

            data = base64.b64encode(b"".join(Emitted("", self.weights).weight_chunks())).decode()
            lines = "\n".join(f'    "{data[i : i + 100]}"' for i in range(0, len(data), 100))
            return f"np.frombuffer(__import__('base64').b64decode(\n{lines}\n), np.uint8)"
        return 'np.fromfile(os.path.join(os.path.dirname(os.path.abspath(__file__)), "weights.bin"), np.uint8)'

    # ------------------------------------------------------------------------ run()
    def _stamp(self, place: int) -> list[str]:
        """Write a statement that notes the time at the start of the run, after each group, or at the end."""
        if not self.options.profile:
            return []
        self.library.imports.setdefault("time", "import time")
        return [f"TIMES[{place}] = time.perf_counter_ns()"]

    def _run(self) -> str:
        groups = self.groups = grouped(self.graph)
        known = sizes_of_inputs(self.graph)
        self.locals = {v: self.local(v) for v in self.graph.inputs}
        lines: list[str] = []
        if self.graph.inputs:
            names = ", ".join(self.locals[v] for v in self.graph.inputs)
            several = f"({names})" if len(names) > WIDTH - 20 else names
            lines.append(f"{several} = inputs" if len(self.graph.inputs) > 1 else f"[{names}] = inputs")
        lines += [*self._sizes_of_inputs(), *self._stamp(0), *self._statements(groups, known)]
        results = ", ".join(self.operand(v) for v in self.graph.outputs)
        lines += [*self.following, *self._stamp(len(groups) + 1), f"return [{results}]"]
        doc = '    """The outputs, in the order of OUTPUTS, for a list of inputs in the order of INPUTS."""'
        body = wrapped("\n".join(lines), "        ")
        parameters = "inputs, state" if self.stateful else "inputs"
        return f'def run({parameters}):\n{doc}\n    with np.errstate(all="ignore"):\n{body}'

    def region(self, region: Graph, hint: str, what: str) -> PyName:
        """Write a region as a function of its inputs, which returns a tuple.  Returns the function's name."""
        inner = copy(self)
        inner.graph, inner.sizes, inner.following = region, {}, []
        inner.results = set(region.outputs)
        inner.needs_sizes = any(isinstance(n.op, DimVector) for n in region.nodes)
        inner.options = replace(self.options, profile=False)
        inner.locals = {}
        parameters = ", ".join(inner.local(v) for v in region.inputs)
        lines = [f"raise ValueError({f'{c.code.id}: {c.message}'!r})" for c in region.extras.get(IMPOSSIBLE, [])]
        lines += [*inner._sizes_of_inputs(), *inner._statements(grouped(region), frozenset())]
        comma = "," if len(region.outputs) == 1 else ""
        lines.append(f"return ({', '.join(inner.operand(v) for v in region.outputs)}{comma})")
        name = self.library.fresh(hint)
        head = wrapped(f"def {name}({parameters}):")
        text = f"{head}\n    {PyDocstring(what)}\n{wrapped(chr(10).join(lines), '    ')}"
        self.library.text_function(name, text, ())
        return name

    def _sizes_of_inputs(self) -> list[str]:
        return [line for value in self.graph.inputs for line in self._sizes_of(value)]

    def _statements(self, groups: list[Group], known: frozenset[str]) -> list[str]:
        """Write the statements of the groups; values that no later group needs are deleted."""
        lines: list[str] = []
        last = self._last_uses(groups)
        for i, group in enumerate(groups):
            with self.sink.catching(group.root.loc):
                lines += self._group(group)
            named = [self.locals[v] for v in group.root.outputs if v in self.locals]
            if not named and group.root.outputs:  # reported: go on to find the rest
                self.locals |= dict.fromkeys(group.root.outputs, _REPORTED)
                continue
            if named and any(data_decide(n, known) for n in group.nodes):
                self.by_data[named[0]] = _place(group)
            with self.sink.catching(group.root.loc):
                dead = [self.locals[v] for v in last.get(i, []) if v in self.locals]
                if dead:
                    names = ", ".join(dead)
                    lines.append(f"del ({names})" if len(names) > WIDTH - 20 else f"del {names}")
            lines += self._stamp(i + 1)
        return lines

    def _last_uses(self, groups: list[Group]) -> dict[int, list[Value]]:
        """Find the last use of each value. Returns, by group, the values that no later group needs."""
        keep = set(self.graph.outputs)
        keep |= {v for n in self.graph.nodes if isinstance(n.op, Assign) for v in n.outputs}  # set at the end
        last: dict[Value, int] = {}
        for i, group in enumerate(groups):
            for value in [*group.operands, *group.root.outputs]:
                if value.const is None and value not in keep:
                    last[value] = i
        found: dict[int, list[Value]] = {}
        for value, i in last.items():
            if i < len(groups) - 1:
                found.setdefault(i, []).append(value)
        return found

    def _group(self, group: Group) -> list[str]:
        node = group.root
        comment = PyComment(f"{_sources(group)}: {', '.join(str(v.type) for v in self._read(node))}")
        if len(group.nodes) > 1:
            args = ", ".join(self.operand(v) for v in group.operands)
            made = f"{self.chains.function(group)}({args})"
            lines = [f"{self.local(node.outputs[0])} = {made}"]
        elif isinstance(node.op, ReadValue | Assign):
            lines = self._variable(node)
        elif isinstance(node.op, DimVector):
            lines = [f"{self.local(node.outputs[0])} = {self._size_vector(node.op.dims)}"]
        elif node.op.regions:
            lines = regions.statements(self, node)
        elif is_elementwise(node):
            made, _ = call(self.library, node, [self.operand(v) for v in node.operands])
            lines = [f"{self.local(node.outputs[0])} = {made}"]
        else:
            lines = self._call(node)
        for value in node.outputs:
            lines += self._sizes_of(value)
        return [comment, *lines]

    def _variable(self, node: Node) -> list[str]:
        """Write the read of a variable (its initial value until it is set), or its assignment at the end of the run."""
        name, result = node.op.variable_id, self.local(node.outputs[0])  # type: ignore[attr-defined]
        if isinstance(node.op, Assign):
            assert node.inputs[0] is not None
            self.following.append(f"state[{name!r}] = {result}")
            return [f"{result} = np.array({self.operand(node.inputs[0])})"]
        if node.inputs and node.inputs[0] is not None:
            initial = self.operand(node.inputs[0])
        else:
            shape = tuple(int(d) if d.is_const else 0 for d in node.outputs[0].shape)
            initial = f"np.zeros({shape}, {dtype_text(node.outputs[0].dtype.numpy)})"
        return [f"{result} = state.get({name!r}, {initial})"]

    def _call(self, node: Node) -> list[str]:
        if isinstance(node.op, Opaque):
            raise Problem(
                codes.NOT_UNDERSTOOD, op=node.op.type, domain=node.op.domain or node.op.format, version=node.op.version
            )
        several = len(node.op.sig.outputs) + sum(p.variadic for p in node.op.sig.outputs) > 1
        used = [v in self._read(node) for v in node.outputs]
        if not several:
            written = self.library.operation(node.op, [fact_of(v) for v in node.inputs])
            made = self._written(written, node)
            return [f"{self.local(node.outputs[0])} = {typed(made, written.result, node.outputs[0])}"]
        missing = len(node.op.sig.outputs) - len(used)
        variadic = any(p.variadic for p in node.op.sig.outputs)
        asked = None if variadic else [*used, *[False] * missing]
        written = self.library.operation(node.op, [fact_of(v) for v in node.inputs], asked)
        made = self._written(written, node)
        if written.whole:
            names = [self.local(v) for v in node.outputs]
            facts = written.result.items if isinstance(written.result, Items) else (OTHER,) * len(names)
            targets = [*names, *(["*_"] if missing and not variadic else [])]
            comma = "," if len(targets) == 1 else ""
            return [f"{', '.join(targets)}{comma} = {made}", *_retyped(names, facts, node.outputs)]
        values = [v for v, u in zip(node.outputs, used, strict=True) if u]
        names = [self.local(v) for v in values]
        if len(values) == 1:
            return [f"{names[0]} = {typed(made, written.result, values[0])}"]
        facts = written.result.items if isinstance(written.result, Items) else (OTHER,) * len(names)
        return [f"{', '.join(names)} = {made}", *_retyped(names, facts, values)]

    def _read(self, node: Node) -> list[Value]:
        """List the results that somebody reads, or the first if nobody does."""
        return [v for v in node.outputs if v.uses or v in self.results] or list(node.outputs[:1])

    def _written(self, written: Written, node: Node) -> str:
        operands = [node.inputs[i] for i in written.operands]
        return f"{written.name}({', '.join('None' if v is None else self.operand(v) for v in operands)})"

    # ----------------------------------------------------------------------- operands
    def operand(self, value: Value) -> str:
        """Name a value in the function that is being written."""
        if value.const is not None:
            return self._constant(value)
        return self.locals[value]

    def local(self, value: Value) -> PyName:
        """Make a variable for a value.  Returns its name."""
        self.locals[value] = PyName.of_model(value.name, self.taken)
        return self.locals[value]

    def _constant(self, value: Value) -> str:
        assert value.const is not None
        key = id(value.const)
        if key in self.shared:
            return self.shared[key]
        array = np.asarray(value.const.array)
        name = self.shared[key] = PyName.of_model(value.name.upper(), self.taken)
        text = array_literal(array) if array.size <= INLINE_LIMIT or value.const.dtype == string else None
        if text is None:
            before = self.weights[-1] if self.weights else (0, np.empty(0))
            start = -(-(before[0] + before[1].nbytes) // ALIGNMENT) * ALIGNMENT
            self.weights.append((start, array))
            text = f"weight({start}, {dtype_text(array.dtype)}, {array.shape})"
        self.library.note(text)
        self.constants.append(f"{name} = {text}")
        return name

    # -------------------------------------------------------------------------- sizes
    def _sizes_of(self, value: Value) -> list[str]:
        """Read the symbolic sizes that are first seen in this value's shape."""
        if isinstance(value.type, TensorType) and value.type.shape is not None and value in self.locals:
            for axis, d in enumerate(value.type.shape):
                if len(d.terms) == 1 and d.terms[0][1] == 1 and len(d.terms[0][0]) == 1:
                    atom = d.terms[0][0][0]
                    if isinstance(atom, Symbol) and atom.name not in self.sizes and self.needs_sizes:
                        name = PyName.of_model(atom.name, self.taken)
                        self.sizes[atom.name] = name
                        return [f"{name} = {self.locals[value]}.shape[{axis}]", *self._sizes_of(value)]
        return []

    def _size_vector(self, dims: Sequence[Dim]) -> str:
        """Write sizes as data: modulo 2⁶⁴ where they may not fit."""
        bounds = [d.bounds(LARGEST_SIZE) for d in dims]
        if all(lo >= -(1 << 63) and hi < 1 << 63 for lo, hi in bounds):
            return f"np.array([{', '.join(map(self._size, dims))}], np.int64)"
        sizes = ", ".join(f"({self._size(d)}) % 2**64" for d in dims)
        return f"np.array([{sizes}], np.uint64).view(np.int64)"

    def _size(self, dim: Dim) -> str:
        """Write a Dim as a Python expression over the sizes seen so far."""
        terms: list[str] = []
        for monomial, c in dim.terms:
            factors = [self._atom(a) for a in monomial]
            terms.append("*".join([*([str(c)] if c != 1 or not factors else []), *factors]))
        return " + ".join(terms).replace("+ -", "- ")

    def _atom(self, atom: Symbol | Func) -> str:
        if isinstance(atom, Symbol):
            if atom.name not in self.sizes:
                raise Problem(codes.NO_NUMPY_SOURCE, op="DimVector", reason=f"the size {atom.name} is not known here")
            return self.sizes[atom.name]
        a, b = (f"({self._size(x)})" for x in atom.args)
        return {
            "floordiv": f"({a}//{b})",
            "ceildiv": f"(-(-{a}//{b}))",
            "mod": f"({a}%{b})",
            "min": f"min({a}, {b})",
            "max": f"max({a}, {b})",
        }[atom.op]


_REPORTED = PyName("reported")  # in place of a value whose operation cannot be written


def _retyped(names: Sequence[PyName], facts: Sequence[Fact], values: Sequence[Value]) -> list[str]:
    texts = [(n, typed(n, f, v)) for n, f, v in zip(names, facts, values, strict=False)]
    return [f"{n} = {t}" for n, t in texts if n != t]


def _sources(group: Group) -> str:
    return ", ".join(dict.fromkeys(n.name or n.op.name for n in group.nodes))


def _place(group: Group) -> tuple[str, str]:
    """Name the operations of a group, and the place of the last of them in the model."""
    return ", ".join(dict.fromkeys(n.op.name for n in group.nodes)), group.root.loc.where


def _import_order(line: str) -> tuple[int, str]:
    return (1 if "numpy" in line or "ml_dtypes" in line else 0), line


_LOADER = '''WEIGHTS = {storage}
WEIGHTS.flags.writeable = False


def weight(offset, dtype, shape):
    """The constant stored from that byte on."""
    return np.frombuffer(WEIGHTS, dtype, math.prod(shape), offset).reshape(shape)
'''

_STATE = '''def initial_state():
    """The variables at the start, for `run`, which changes them: none of them is set."""
    return {}
'''

_MAIN = '''def main():
    """python model.py IN.npz OUT.npz: run the model on the arrays named in INPUTS."""
    import sys
    import zipfile

    with np.load(sys.argv[1]) as given:
        results = run([given[name] for name, _ in INPUTS]{state})
    with zipfile.ZipFile(sys.argv[2], "w") as file:
        for name, value in zip({members}, results):
            with file.open(name + ".npy", "w", force_zip64=True) as stream:
                np.save(stream, value)


if __name__ == "__main__":
    main()
'''
