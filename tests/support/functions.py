"""What a graph is compiled to: the functions, each with the layers and kernels that it has, for tests to look at."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from irc.cli.profile_report import family
from irc.diagnostics import Sink
from irc.driver import CompileOptions, sources
from irc.fusion import group
from irc.ir.graph import Graph, Model
from irc.kernels import ISAS
from irc.loops import memory
from irc.loops.ir import Function, KernelCall, Program, walk
from irc.loops.lower import lower
from irc.passes.layers import layer_name
from irc.pipelines import compile_c
from tests.support.instruction_sets import TARGETS
from tests.support.lowering import Array, graph_of


def named_graph(build: Callable[..., Any], *feeds: Array) -> Graph:
    """`graph_of`, with a name of its own for each node: its first result's."""
    graph = graph_of(build, *feeds)
    for node in graph.nodes:
        node.name = node.outputs[0].name
    return graph


def compiled(graph: Graph, isa: str = "avx2") -> Program:
    """The program of a copy of the graph, with the kernels of an instruction set."""
    graph, sink = graph.copy(), Sink()
    for _, run in compile_c(ISAS[isa]):
        run(graph, sink)
        assert not sink.errors, sink.errors
    return lower(graph, group.run(graph), "test")


def layers(graph: Graph) -> list[str]:
    """The names of the graph's layers in its order."""
    return list(dict.fromkeys(map(layer_name, graph.nodes)))


def kernels(function: Function) -> list[str]:
    """The families of the kernels that a function calls."""
    return [family(s.kernel.symbol) for s in walk(function.body) if isinstance(s, KernelCall)]


def how(function: Function) -> str:
    """The kernels that a function calls, or that it is loops; whether it only changes the layout."""
    return " + ".join(kernels(function) or ["loops"]) + (" for the layout" if function.comment else "")


def listing(program: Program) -> str:
    """Each function on a line: its layers and how they are computed; then what stands in the arena, in bytes."""
    lines = [f"{', '.join(f.origin)}: {how(f)}" for f in program.functions]
    buffers = [f"{b.name} {b.bytes}" for b in memory.lives(program)]
    return "\n".join([*lines, f"arena: {', '.join(buffers) or 'nothing'}", ""])


def c_text(graph: Graph, isa: str = "avx2") -> str:
    """The C of a model as one text, its kernels left out."""
    made = sources(Model(graph), CompileOptions("c", target=TARGETS[isa], cache=False))
    return "\n".join(str(text) for name, text in sorted(made.files.items()) if re.fullmatch(r"model.*\.c", name))


def functions_in(text: str) -> list[tuple[str, str]]:
    """Each commented function in a C text, with what belongs to it: the comment, and all of it."""
    parts = re.split(r"\n\n(?=/\*|struct )", text)
    return [(p.partition("*/")[0], p + "\n") for p in parts if p.startswith("/*") and "static void" in p]
