"""The graph: `Value`, `Node`, `Graph`, `Model`.

Ports live in `Node.inputs` and `Node.outputs`.  `Graph.dag` is a networkx DiGraph of the nodes,
one edge per dependency, kept up to date by Graph's mutators: whole-graph questions (order,
reachability, dominators, GraphML) are ordinary networkx.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import networkx as nx
import numpy as np

from irc.arrays import Array
from irc.diagnostics import NOWHERE, Loc
from irc.ir import graph_text
from irc.ir.dim import Dim
from irc.ir.limits import ELEMENTS
from irc.ir.types import DType, Extras, Shape, TensorType, Type, dtype_from_numpy

if TYPE_CHECKING:
    from irc.opdef.base import Op

CONTENTS_LIMIT = 64
"""Integer tensors up to this many elements carry their symbolic contents."""
WHOLE_LIMIT = 8
"""Float tensors, if their elements are whole numbers: sizes on their way through float arithmetic."""
LARGEST_WHOLE = 1 << 24
"""Up to here f32 has every whole number."""


def carries(type: TensorType) -> bool:
    """Whether a value of that type may carry its elements: it is small, and of integers, booleans, f32 or f64."""
    if type.dtype.name in ("f32", "f64"):
        limit = WHOLE_LIMIT
    elif type.dtype.kind in "iub":
        limit = CONTENTS_LIMIT
    else:
        return False
    return type.is_static and int(type.elements()) <= limit


def whole_numbers(array: Array) -> bool:
    """Whether floats are whole numbers that `contents` can hold; it does not know -0."""
    whole = (np.abs(array) <= LARGEST_WHOLE) & (array == np.rint(array)) & ~((array == 0) & np.signbit(array))
    return bool(np.all(whole))


class Constant:
    """A constant's data: loaded (or mapped) when first asked for."""

    __slots__ = ("_array", "_load", "dtype", "shape")

    def __init__(self, dtype: DType, shape: tuple[int, ...], load: Callable[[], Array]) -> None:
        self.dtype, self.shape, self._load = dtype, shape, load
        self._array: Array | None = None

    @staticmethod
    def of(array: Array, dtype: DType | None = None) -> Constant:
        found = Constant(dtype or dtype_from_numpy(array.dtype), array.shape, lambda: array)
        found._array = array
        return found

    def derived(self, shape: tuple[int, ...], change: Callable[[Array], Array]) -> Constant:
        """Make a constant of what `change` makes of the array, in this shape, when it is asked for."""
        return Constant(self.dtype, shape, lambda: np.ascontiguousarray(change(self.array)).reshape(shape))

    @property
    def load(self) -> Callable[[], Array]:
        """What reads the data."""
        return self._load

    @property
    def array(self) -> Array:
        """The data, which stay in memory from now on."""
        if self._array is None:
            self._array = self._load()
        return self._array

    def read(self) -> Array:
        """Read the data, which stay in memory only if they are there already."""
        return self._load() if self._array is None else self._array

    @property
    def type(self) -> TensorType:
        return TensorType.of(self.dtype, self.shape)


@dataclass(eq=False, slots=True)
class Value:
    """A tensor (sequence, optional …) that flows along edges.

    `name` is unique in a model; `names` are those a user may call it by.  `const` holds its data
    if it is constant, and then `producer` is None.  `contents` are the elements as Dims, for small
    integer tensors (and floats that are whole numbers) whose elements are known symbolically (an object array of
    the tensor's shape).  They are `assumed` where they hold only if no arithmetic on the way leaves its element type:
    shapes are computed from them, data are not.
    """

    name: str
    type: Type | None = None
    producer: Node | None = None
    index: int = 0
    const: Constant | None = None
    contents: Array | None = None
    assumed: bool = False
    names: tuple[str, ...] = ()
    loc: Loc = NOWHERE
    extras: Extras = field(default_factory=Extras)
    uses: dict[Node, int] = field(default_factory=dict["Node", int])  # consumers, with the number of ports

    def __repr__(self) -> str:
        return f"%{self.name}: {self.type}"

    # What operations ask of their operands; the type must be known by then.
    @property
    def tensor(self) -> TensorType:
        assert isinstance(self.type, TensorType), f"%{self.name} is {self.type}, not a tensor"
        return self.type

    @property
    def dtype(self) -> DType:
        return self.tensor.dtype

    @property
    def rank(self) -> int | None:
        return self.tensor.rank

    @property
    def shape(self) -> Shape:
        return self.tensor.dims()

    @property
    def array(self) -> Array | None:
        """The data where it is constant (also when only `contents` are known, all of them numbers)."""
        if self.const is not None:
            return self.const.array
        if self.contents is not None and not self.assumed and all(d.is_const for d in self.contents.flat):
            return np.array([int(d) for d in self.contents.flat], self.dtype.numpy).reshape(self.contents.shape)
        return None

    def ints(self) -> list[int] | None:
        """The elements as Python ints, flattened, where all are known; else None."""
        if isinstance(self.type, TensorType) and self.const is not None:
            ELEMENTS.check(math.prod(self.const.shape), self.name)
        array = self.array
        return None if array is None else [int(x) for x in array.reshape(-1)]

    def dims(self) -> list[Dim] | None:
        """The elements as Dims, flattened, where known symbolically; else None."""
        if self.contents is not None:
            return list(self.contents.reshape(-1))
        found = self.ints() if self.const is not None and self.dtype.is_integer else None
        return None if found is None else [Dim.of(x) for x in found]


@dataclass(eq=False, slots=True)
class Origin:
    """The layer or node of the file that canonical nodes were read from.

    `raw` is that layer as read and `form` the table row that read it.  `nodes` are all canonical
    nodes it became; as long as they are untouched (`intact`), writing the same format again writes
    `raw` with `inputs` and `outputs` as operands.
    """

    format: str
    raw: Any
    form: Any
    inputs: tuple[Value | None, ...]
    outputs: tuple[Value, ...]
    nodes: list[Node] = field(default_factory=list["Node"])
    intact: bool = True

    @property
    def is_read_inside(self) -> bool:
        """Whether another node reads a value of these nodes that the layer does not give, as a Gradient may."""
        hidden = [v for node in self.nodes for v in node.outputs if v not in self.outputs]
        return any(user not in self.nodes for v in hidden for user in v.uses)


@dataclass(eq=False, slots=True)
class Node:
    """An operation applied to values.  An absent optional operand is None.

    `layers` are the names of the model's layers that it computes, in their order: none for what no layer asks for,
    such as a change of layout; None as long as nobody has said (`irc.passes.layers`, `Graph.replace_uses`).
    """

    op: Op
    inputs: tuple[Value | None, ...]
    outputs: tuple[Value, ...]
    name: str = ""
    loc: Loc = NOWHERE
    origin: Origin | None = None
    layers: tuple[str, ...] | None = None

    def __repr__(self) -> str:
        return f"<{self.op} {self.name!r}>"

    @property
    def operands(self) -> Iterator[Value]:
        """The operands that are present."""
        return (v for v in self.inputs if v is not None)


class Graph:
    """Nodes and values with inputs and outputs.  All edits go through its methods.

    `sizes` are the values, of one i64 each, that say what a symbol is which only the run of an operation tells, by the
    symbol's name (`irc.passes.define_sizes`); they are kept like outputs.
    """

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.inputs: list[Value] = []
        self.outputs: list[Value] = []
        self.extras: Extras = {}
        self.sinks: list[Node] = []  # nodes kept for their effect (Assign)
        self.sizes: dict[str, Value] = {}
        self.renamed: dict[str, Dim] = {}  # symbols whose value was replaced, and what stands for them in the new one
        self._dag: nx.DiGraph[Node] = nx.DiGraph()
        self._order: tuple[Node, ...] | None = None  # of the nodes as they are now
        self._names: set[str] = set()
        self._counter: dict[str, int] = {}

    @property
    def dag(self) -> nx.DiGraph[Node]:
        """The dependencies between nodes, read-only; ports are on the nodes."""
        return cast("nx.DiGraph[Node]", nx.DiGraph.copy(self._dag, as_view=True))  # pyright: ignore[reportUnknownMemberType]

    @property
    def nodes(self) -> list[Node]:
        """The nodes in a dependency order that is the same every time (insertion order breaks ties)."""
        if self._order is None:
            position = {n: i for i, n in enumerate(self._dag)}
            self._order = tuple(nx.lexicographical_topological_sort(self._dag, key=position.__getitem__))
        return list(self._order)

    def __len__(self) -> int:
        return len(self._dag)

    def __repr__(self) -> str:
        return f"<graph {self.name!r} of {len(self)} nodes>"

    def __str__(self) -> str:
        return graph_text.as_text(self)

    def _repr_html_(self) -> str:
        from irc.ir.pictures import notebook

        return notebook.html(self)

    def nested(self) -> Iterator[Graph]:
        """This graph, then the regions of its nodes, and theirs."""
        yield self
        for node in self.nodes:
            for region in node.op.regions:
                yield from region.nested()

    def values(self) -> list[Value]:
        """Every value: inputs, operands (constants among them) and results, each once."""
        seen: dict[Value, None] = dict.fromkeys(self.inputs)
        for node in self.nodes:
            seen.update(dict.fromkeys(node.operands))
            seen.update(dict.fromkeys(node.outputs))
        seen.update(dict.fromkeys((*self.outputs, *self.sizes.values())))
        return list(seen)

    def results(self) -> list[Value]:
        """The values that something outside of the nodes reads: the outputs, and what sizes are."""
        return list(dict.fromkeys((*self.outputs, *self.sizes.values())))

    def keeps(self, value: Value) -> bool:
        """Tell whether something outside of the nodes reads the value."""
        return value in self.outputs or value in self.sizes.values()

    def only_use(self, value: Value) -> Node | None:
        """Return the only node that reads a value; None if there are several, or something else does."""
        return next(iter(value.uses)) if len(value.uses) == 1 and not self.keeps(value) else None

    def constants(self) -> list[Value]:
        return [v for v in self.values() if v.const is not None]

    def find(self, name: str) -> Value | None:
        """The value of that name, or with that name among `names`."""
        return next((v for v in self.values() if v.name == name or name in v.names), None)

    # ------------------------------------------------------------------ mutators
    def fresh_name(self, hint: str) -> str:
        """A value name nobody uses: `hint` itself if it is free."""
        name = hint or "v"
        while name in self._names:
            self._counter[hint] = self._counter.get(hint, 0) + 1
            name = f"{hint or 'v'}_{self._counter[hint]}"
        self._names.add(name)
        return name

    def reserve(self, names: Iterable[str]) -> None:
        """Names that `fresh_name` must not hand out."""
        self._names.update(names)

    def new_value(self, hint: str, type: Type | None = None, **fields: Any) -> Value:
        return Value(self.fresh_name(hint), type, **fields)

    def add_input(self, name: str, type: Type | None, **fields: Any) -> Value:
        value = self.new_value(name, type, **fields)
        self.inputs.append(value)
        return value

    def add_constant(self, constant: Constant | Array, hint: str = "const", **fields: Any) -> Value:
        const = constant if isinstance(constant, Constant) else Constant.of(constant)
        value = self.new_value(hint, const.type, const=const, **fields)
        if carries(const.type) and (const.dtype.kind != "f" or whole_numbers(const.array)):
            dims = [Dim.of(int(x)) for x in const.array.reshape(-1)]
            value.contents = np.array([*dims, None], dtype=object)[:-1].reshape(const.shape)
        return value

    def add_node(
        self,
        op: Op,
        inputs: Sequence[Value | None],
        outputs: Sequence[Value],
        name: str = "",
        loc: Loc = NOWHERE,
        layers: tuple[str, ...] | None = None,
    ) -> Node:
        node = Node(op, tuple(inputs), tuple(outputs), name, loc, layers=layers)
        for i, value in enumerate(node.outputs):
            value.producer, value.index = node, i
        self._dag.add_node(node)
        self._connect(node)
        return node

    def add_result(self, node: Node, hint: str, type: Type) -> Value:
        """Give a node one more result.  Returns it."""
        self._touch(node)
        value = self.new_value(hint, type, producer=node, index=len(node.outputs))
        node.outputs = (*node.outputs, value)
        return value

    def set_op(self, node: Node, op: Op, inputs: Sequence[Value | None] | None = None) -> None:
        """Change what a node does, or its operands."""
        self._touch(node)
        node.op = op
        if inputs is not None:
            self._disconnect(node)
            node.inputs = tuple(inputs)
            self._connect(node)

    def replace_uses(self, old: Value, new: Value) -> None:
        """Make every consumer of `old`, and every graph output it is, use `new`.

        Nodes that were added to compute `new` take over the layers of those that are not needed any more.
        """
        self._hand_on_layers(old, new)
        self._hand_on_sizes(old, new)
        for node in list(old.uses):
            self._touch(node)
            self._disconnect(node)
            node.inputs = tuple(new if v is old else v for v in node.inputs)
            self._connect(node)
        self.outputs = [new if v is old else v for v in self.outputs]
        self.sizes = {name: new if v is old else v for name, v in self.sizes.items()}

    def remove(self, node: Node) -> None:
        """Take a node out; its results must be unused."""
        assert not any(v.uses for v in node.outputs), f"{node} is still used"
        self._touch(node)
        self._disconnect(node)
        self._dag.remove_node(node)
        for value in node.outputs:
            value.producer = None

    def prune(self) -> int:
        """Remove the nodes that reach no output, size or sink; how many there were."""
        keep: set[Node] = set(self.sinks)
        stack = [v.producer for v in self.results() if v.producer] + list(self.sinks)
        while stack:
            node = stack.pop()
            keep.add(node)
            stack += [v.producer for v in node.operands if v.producer and v.producer not in keep]
        dead = [n for n in self._dag if n not in keep]
        for node in reversed(list(nx.topological_sort(self._dag.subgraph(dead)))) if dead else ():
            self.remove(node)
        return len(dead)

    def prune_back(self, node: Node) -> int:
        """Remove a node and those before it, as far as nothing needs them any more; how many there were.

        After one replacement it leaves what `prune` would, without a walk over the whole graph.
        """
        waiting, done = [node], 0
        while waiting:
            last = waiting.pop()
            if last not in self._dag or last in self.sinks or any(v.uses or self.keeps(v) for v in last.outputs):
                continue
            waiting += [v.producer for v in last.operands if v.producer]
            self.remove(last)
            done += 1
        return done

    def _hand_on_layers(self, old: Value, new: Value) -> None:
        """Give the nodes behind `new` that have no layers yet those of `old`'s producer and of what only that needs."""
        if old.producer is None or old.producer.layers is None:
            return
        added: dict[Node, None] = {}
        waiting = [new.producer]
        while waiting:
            node = waiting.pop()
            if node is not None and node.layers is None and node not in added:
                added[node] = None
                waiting += [v.producer for v in node.operands]
        if added:
            layers = layers_of(self._needed_by_alone(old.producer))
            for node in added:
                node.layers = layers

    def _hand_on_sizes(self, old: Value, new: Value) -> None:
        """Note what `old`'s symbols are in `new`."""
        if isinstance(old.type, TensorType) and isinstance(new.type, TensorType) and old.rank == new.rank:
            for a, b in zip(old.type.shape or (), new.type.shape or (), strict=True):
                symbol = a.symbol_alone()
                if symbol is not None and a != b:
                    self.renamed[symbol.name] = b

    def _needed_by_alone(self, node: Node) -> list[Node]:
        """The node, and those that compute nothing but operands of these nodes; operands first."""
        found: dict[Node, None] = {node: None}
        kept = {v.producer for v in self.results()}.union(self.sinks)
        waiting = [node]
        while waiting:
            for value in waiting.pop().operands:
                before = value.producer
                if before is None or before in found or before in kept:
                    continue
                if all(user in found for v in before.outputs for user in v.uses):
                    found[before] = None
                    waiting.append(before)
        return list(reversed(found))

    def _touch(self, node: Node) -> None:
        if node.origin:
            node.origin.intact = False

    def _connect(self, node: Node) -> None:
        self._order = None
        for value in node.operands:
            value.uses[node] = value.uses.get(node, 0) + 1
            if value.producer is not None:
                self._dag.add_edge(value.producer, node)

    def _disconnect(self, node: Node) -> None:
        self._order = None
        for value in set(node.operands):
            value.uses.pop(node, None)
            if value.producer is not None and self._dag.has_edge(value.producer, node):
                self._dag.remove_edge(value.producer, node)

    # ---------------------------------------------------------------------- copy
    def copy(self) -> Graph:
        """A copy whose nodes, values and regions are new; other operations, types and constants are shared."""
        twin = Graph(self.name)
        twin.extras = copy.copy(self.extras)
        twins: dict[Value, Value] = {}

        def of(value: Value) -> Value:
            if value not in twins:
                twins[value] = Value(
                    value.name,
                    value.type,
                    None,
                    0,
                    value.const,
                    value.contents,
                    value.assumed,
                    value.names,
                    value.loc,
                    dict(value.extras),
                )
            return twins[value]

        twin._names, twin._counter = set(self._names), dict(self._counter)
        twin.inputs = [of(v) for v in self.inputs]
        nodes: dict[Node, Node] = {}
        for node in self.nodes:
            ins = [None if v is None else of(v) for v in node.inputs]
            op = node.op.with_regions([region.copy() for region in node.op.regions])
            nodes[node] = twin.add_node(op, ins, [of(v) for v in node.outputs], node.name, node.loc)
            nodes[node].origin, nodes[node].layers = copy.copy(node.origin), node.layers
        twin.outputs = [of(v) for v in self.outputs]
        twin.sinks = [nodes[n] for n in self.sinks]
        twin.sizes = {name: of(v) for name, v in self.sizes.items()}
        twin.renamed = dict(self.renamed)
        return twin


@dataclass(repr=False)
class Model:
    """A loaded model: its graph, and what else its file said."""

    graph: Graph
    format: str = ""  # "onnx" or "openvino": where it came from
    version: int = 0  # ONNX ir_version or OpenVINO IR version
    opsets: dict[str, int] = field(default_factory=dict[str, int])
    functions: list[Any] = field(default_factory=list[Any])
    metadata: dict[str, str] = field(default_factory=dict[str, str])
    extras: Extras = field(default_factory=Extras)
    file: str = ""

    def __repr__(self) -> str:
        kind = {"onnx": "ONNX", "openvino": "OpenVINO IR"}.get(self.format, "built")
        return f"<model {self.graph.name!r} ({kind}): {len(self.graph)} nodes, {self._ports()}>"

    def __str__(self) -> str:
        return graph_text.as_text(self.graph)

    def _repr_html_(self) -> str:
        from irc.ir.pictures import notebook

        return notebook.html(self.graph)

    def _ports(self) -> str:
        return " -> ".join(", ".join(f"{v.name}: {v.type}" for v in values) for values in (self.inputs, self.outputs))

    @property
    def inputs(self) -> list[Value]:
        return self.graph.inputs

    @property
    def outputs(self) -> list[Value]:
        return self.graph.outputs


def layers_of(nodes: Iterable[Node]) -> tuple[str, ...]:
    """The layers that these nodes compute, each once."""
    return tuple(dict.fromkeys(name for node in nodes for name in node.layers or ()))


def symbols_of(values: Iterable[Value]) -> dict[str, Dim]:
    """The symbols in the shapes of these values, by name, in order of appearance."""
    found: dict[str, Dim] = {}
    for value in values:
        if isinstance(value.type, TensorType) and value.type.shape is not None:
            for dim in value.type.shape:
                for symbol in sorted(dim.symbols()):
                    found.setdefault(symbol.name, Dim({(symbol,): 1}))
    return found
