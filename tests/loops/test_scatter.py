"""Scatters copy their data as one run, however short its rows are."""

from __future__ import annotations

import numpy as np
import pytest

import irc
from irc.driver import CompileOptions, sources
from irc.ir.graph import Graph, Model
from irc.ir.types import TensorType, f32
from irc.opdef.base import load_all
from irc.opdef.builder import Builder
from irc.toolchain.c_compiler import find_compiler


@pytest.mark.skipif(find_compiler() is None, reason="no C compiler")
@pytest.mark.parametrize("reduction", ["none", "add"])
def test_data_are_copied_as_one_run(reduction: str) -> None:
    load_all()
    graph = Graph("scatter")
    x, u = (graph.add_input(n, TensorType.of(f32, s)) for n, s in (("x", (3, 5, 7)), ("u", (2, 7))))
    b = Builder(graph)
    graph.outputs = [b.ScatterND(x, b.const(np.array([[2, 1], [0, -1]])), u, reduction=reduction)]
    model = Model(graph)
    files = sources(model, CompileOptions(cache=False)).files
    assert "< 105; ++" in "".join(str(text) for name, text in files.items() if name.endswith(".c"))
    data, updates = (np.random.default_rng(3).standard_normal(s).astype(np.float32) for s in ((3, 5, 7), (2, 7)))
    (found,) = irc.compile(model, backend="c", cache=False)({"x": data, "u": updates})
    wanted = data.copy()
    wanted[2, 1] = updates[0] + (wanted[2, 1] if reduction == "add" else 0)
    wanted[0, -1] = updates[1] + (wanted[0, -1] if reduction == "add" else 0)
    np.testing.assert_array_equal(found, wanted)
