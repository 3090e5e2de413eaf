"""`Builder`: makes graphs from nothing, and changes those of models; each step is checked."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from irc.arrays import Array
from irc.diagnostics import InvalidModel, Loc, Sink
from irc.editing import validity
from irc.ir.dim import Dim
from irc.ir.graph import Constant, Graph, Model, Node, Value
from irc.ir.types import DTYPES, TensorType, dtype, dtype_from_numpy
from irc.opdef import builder
from irc.opdef.registry import OPS, load_all
from irc.passes import infer

if TYPE_CHECKING:
    from irc.opdef.base import Op


class Builder(builder.Builder):
    """Adds operations to a model's graph, by default a new one, and changes what is there.  Every call infers types.

    `b.Name(x, …, attribute=…)` adds the operation of that name, which has one result, and returns the result; numbers
    and lists become constants of the operands' type.  `b.add_all(irc.ops.TopK(axis=1), x, k)` is for several results.
    All raise InvalidModel, and then leave the graph as it was.
    """

    def __init__(self, model: Model | None = None, name: str = "model") -> None:
        self._model = Model(Graph(name)) if model is None else model
        super().__init__(self._model.graph)

    def __getattr__(self, name: str) -> builder.Add:
        load_all()
        if name not in OPS:
            import difflib

            near = difflib.get_close_matches(name, OPS, 1)
            raise AttributeError(f"there is no operation {name!r}" + (f"; did you mean {near[0]}?" if near else ""))
        return self.operation(name)

    # ------------------------------------------------------------------------ building
    def input(self, name: str, element_type: str, shape: Sequence[int | str | None] | None) -> Value:
        """Add an input: "f32", ("batch", 3, None); a text names a size, None leaves it open, and is any rank for all.

        Raises ValueError for an element type that does not exist.
        """
        if element_type not in DTYPES:
            raise ValueError(f"{element_type!r} is no element type; there are {', '.join(DTYPES)}")
        dims = None if shape is None else tuple(map(_dim, shape))
        return self.graph.add_input(name, TensorType(dtype(element_type), dims))

    def constant(self, array: Array, name: str = "weight") -> Value:
        """Add a constant; it is kept as it is, and not copied."""
        return self.graph.add_constant(Constant.of(array, dtype_from_numpy(array.dtype)), name)

    def output(self, value: Value, name: str | None = None) -> Value:
        """Make a value an output, under this name."""
        if name is not None and name != value.name:
            value.name = self.graph.fresh_name(name)
            value.names = (value.name,)
        self.graph.outputs.append(value)
        return value

    def add_all(self, op: Op, *operands: builder.Operand) -> tuple[Value, ...]:
        """Add an operation.  Returns all its results.  Raises InvalidModel."""
        with _checked(op.name):
            return super().add_all(op, *operands)
        raise AssertionError  # what is raised inside is raised

    def model(self) -> Model:
        """Give the model, checked as a whole, to save, convert or compile.  Raises InvalidModel."""
        sink = Sink()
        validity.check(self._model, sink)
        sink.stop_on_errors(InvalidModel)
        return self._model

    # ------------------------------------------------------------------------- editing
    def swap(self, node: Node, op: Op, *operands: Value | None) -> Node:
        """Make a node compute something else, of other operands where they are given; types behind it follow.

        Raises InvalidModel where it, or what uses its results, does not fit.
        """
        before = (node.op, node.inputs)
        self.graph.set_op(node, op, operands or None)
        self._follow(lambda: self.graph.set_op(node, *before))
        return node

    def insert(self, value: Value, op: Op, *others: builder.Operand) -> Value:
        """Put an operation behind a value: what used the value uses the result from now on.  Returns that.

        An output keeps its name.  Raises InvalidModel where the type of the result does not fit.
        """
        users, outputs = list(value.uses), list(self.graph.outputs)
        made = self.add(op, value, *others)
        self._use(users, value, made)
        self.graph.outputs = [made if v is value else v for v in outputs]

        def undo() -> None:
            self._use(users, made, value)
            self.graph.outputs = outputs
            if made.producer is not None:
                self.graph.remove(made.producer)

        self._follow(undo)
        if value in outputs:
            value.name, made.name = made.name, value.name
            value.names, made.names = (), value.names
            value.extras, made.extras = made.extras, value.extras
        return made

    def _use(self, users: Sequence[Node], old: Value, new: Value) -> None:
        for node in users:
            self.graph.set_op(node, node.op, tuple(new if v is old else v for v in node.inputs))

    def _follow(self, undo: Callable[[], None]) -> None:
        """Infer all types again; where something does not fit, undo the change and raise InvalidModel."""
        sink = Sink()
        infer.run(self.graph, sink)
        if sink.errors:
            undo()
            infer.run(self.graph, Sink())
            sink.stop_on_errors(InvalidModel)


def _dim(size: int | str | None) -> Dim:
    return Dim.fresh() if size is None else Dim.symbol(size) if isinstance(size, str) else Dim.of(size)


@contextmanager
def _checked(what: str) -> Generator[None]:
    """InvalidModel for a Problem inside, and for what nobody foresaw."""
    sink = Sink()
    with sink.catching(Loc(where=what)):
        yield
    sink.stop_on_errors(InvalidModel)
