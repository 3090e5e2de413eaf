"""What compiling makes of a model, step by step: `record`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from irc.ir.graph import Graph, Model, Node, layers_of
from irc.ir.pictures.picture import Box, Picture, of_graph, placed
from irc.loops.ir import Buffer, For, Function, If, KernelCall, Program, Stmt
from irc.loops.memory import MemoryPlan
from irc.opdef.text import node_text

if TYPE_CHECKING:
    from irc.driver import CompileOptions

FUSION = "fusion"
"""What puts together layers that no pass did."""


@dataclass(frozen=True)
class Stage:
    """The graph after a pass that changed it; number: of nodes."""

    name: str
    number: int
    picture: Picture


@dataclass(frozen=True)
class Step:
    """A function of the compiled model, with its layers, the kernels that it calls, its loops and its C.

    tensors: what it reads and writes, each with its type, bytes and place.
    """

    name: str
    layers: tuple[str, ...]
    kernels: tuple[str, ...]
    loops: str
    c: str
    tensors: tuple[str, ...]


@dataclass
class Recording:
    """What compiling made of a model.

    layers: each with where it stands in the file, and its text there.  joined: the pass that made each layer part of
    something with others.  sources: the C of each kernel, by symbol.  arena: its bytes, an expression of the sizes.
    """

    model: str
    layers: dict[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    stages: list[Stage] = field(default_factory=list[Stage])
    steps: list[Step] = field(default_factory=list[Step])
    sources: dict[str, str] = field(default_factory=dict[str, str])
    joined: dict[str, str] = field(default_factory=dict[str, str])
    arena: str = ""

    # ------------------------------------------------------------------- irc.pipelines.Watch
    def graph(self, name: str, graph: Graph) -> None:
        """Keep the graph after a pass if the pass changed it."""
        if name == "load":
            return  # the layers are not named yet
        found = of_graph(graph, label_of, node_text)
        if not self.stages:
            self._read_layers(graph)
        elif found == self.stages[-1].picture:
            return
        for node in (n for inner in graph.nested() for n in inner.nodes):
            if len(node.layers or ()) > 1:
                for layer in node.layers or ():
                    self.joined.setdefault(layer, name)
        title = "as read" if not self.stages else name
        self.stages.append(Stage(title, sum(len(inner) for inner in graph.nested()), found))

    def program(self, program: Program, plan: MemoryPlan) -> None:
        """Keep the functions and their memory."""
        from irc.backends.c.files import function_texts
        from irc.loops.text import function_text

        self.arena = str(plan.size)
        made: dict[Buffer, int] = {}
        boxes: list[Box] = []
        lines: list[tuple[int, int, str]] = []
        for b in program.inputs:
            made[b] = len(boxes)
            boxes.append(Box("input", b.name, placed_buffer(b, plan)))
        for function, text in zip(program.functions, function_texts(program, plan), strict=True):
            kernels = kernels_of(function.body)
            for kernel in kernels:
                self.sources.setdefault(kernel.symbol, kernel.source())
            symbols = tuple(k.symbol for k in kernels)
            touched = dict.fromkeys((*function.reads, *function.writes))
            tensors = tuple(placed_buffer(b, plan) for b in touched)
            step = Step(function.name, function.origin, symbols, function_text(function), text, tensors)
            self._add(step, function, made, boxes, lines)
        for b in program.outputs:
            if b.root in made:
                lines.append((made[b.root], len(boxes), type_of(b)))
            boxes.append(Box("output", b.name, placed_buffer(b, plan)))
        self.stages.append(Stage("functions", len(self.steps), placed(boxes, lines)))

    def _add(
        self,
        step: Step,
        function: Function,
        made: dict[Buffer, int],
        boxes: list[Box],
        lines: list[tuple[int, int, str]],
    ) -> None:
        from irc.runtime.profiling import family

        self.steps.append(step)
        if len(step.layers) > 1:
            for layer in step.layers:
                self.joined.setdefault(layer, FUSION)
        box = len(boxes)
        lines.extend((made[b.root], box, type_of(b)) for b in function.reads if b.root in made)
        made.update({b.root: box for b in function.writes})
        label = " + ".join(dict.fromkeys(map(family, step.kernels))) or "loops"
        boxes.append(Box(label, step.name, ", ".join(step.layers), step.layers))

    def _read_layers(self, graph: Graph) -> None:
        for node in (n for inner in graph.nested() for n in inner.nodes):
            for layer in layers_of([node]):
                if layer not in self.layers:
                    spot = node.loc.spot()
                    line = f" line {spot.line}" if spot and spot.line else ""
                    self.layers[layer] = (f"{node.loc.where}{line}", spot.text.strip() if spot else "")


def record(model: Model, options: CompileOptions) -> Recording:
    """Compile a model to C sources and keep what comes up on the way.  Raises CompileError."""
    from irc import driver

    found = Recording(model.file or model.graph.name)
    driver.sources(model, options, found)
    return found


def label_of(node: Node) -> str:
    """Name what a node does: its operation, of a kernel its family."""
    from irc.runtime.profiling import family

    symbol = getattr(getattr(node.op, "kernel", None), "symbol", None)
    return node.op.name if symbol is None else family(symbol)


def type_of(buffer: Buffer) -> str:
    """Write the type of a buffer."""
    return f"{buffer.dtype.name}[{', '.join(map(str, buffer.shape))}]"


def placed_buffer(buffer: Buffer, plan: MemoryPlan) -> str:
    """Write what a buffer holds, how large it is and where."""
    place = f"arena + {plan.offsets[buffer.root]}" if buffer.root in plan.offsets else buffer.root.where
    return f"{buffer.name}: {type_of(buffer)}, {buffer.bytes} bytes, {place}"


def kernels_of(body: list[Stmt]) -> list[Any]:
    """List the kernels that statements call, each once."""
    found: dict[str, Any] = {}
    for statement in body:
        inside: list[Stmt] = []
        if isinstance(statement, KernelCall):
            found.setdefault(statement.kernel.symbol, statement.kernel)
        elif isinstance(statement, For):
            inside = statement.body
        elif isinstance(statement, If):
            inside = [*statement.then, *statement.orelse]
        found |= {k.symbol: k for k in kernels_of(inside) if k.symbol not in found} if inside else {}
    return list(found.values())
