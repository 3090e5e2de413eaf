"""Where findings point, in which order they come, what is folded, and what follows from an earlier one."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import irc
from irc.diagnostics import Diagnostic, Loc, Sink
from irc.diagnostics.codes import shape
from irc.diagnostics.render import render_text

DIGITS = Path(__file__).resolve().parents[2] / "samples" / "digits" / "digits.xml"


def changed(folder: Path, *changes: tuple[str, str]) -> list[Diagnostic]:
    """What irc finds in the sample once these patterns are replaced, each where it occurs first."""
    text = DIGITS.read_text("utf-8")
    for pattern, new in changes:
        text, count = re.subn(pattern, new, text, count=1, flags=re.DOTALL)
        assert count == 1, pattern
    (folder / "m.xml").write_text(text, "utf-8")
    (folder / "m.bin").write_bytes(DIGITS.with_suffix(".bin").read_bytes())
    return irc.validate(folder / "m.xml")


def excerpt(found: Diagnostic) -> tuple[str, str]:
    """The line of the file that a finding shows, and what its carets stand below."""
    lines = str(found).splitlines()
    text, carets = next(pair for pair in itertools.pairwise(lines) if "^" in pair[1])
    at, end = carets.index("^"), carets.rindex("^") + 1
    return text, text[at:end]


# ------------------------------------------------------------------------------ places
def test_an_attribute_is_shown_with_carets(tmp_path: Path) -> None:
    (found,) = changed(tmp_path, ('auto_pad="explicit"', 'auto_pad="explicitt"'))
    assert excerpt(found)[1] == 'auto_pad="explicitt"'
    line = (tmp_path / "m.xml").read_text("utf-8").splitlines()[(found.location.line or 0) - 1]
    assert line.lstrip().startswith("<data ")
    assert line[(found.location.column or 0) - 1 :].startswith('auto_pad="explicitt"')


def test_a_missing_attribute_is_looked_for_in_data(tmp_path: Path) -> None:
    found = changed(tmp_path, ('kernel="2, 2" ', ""))[0]
    assert (found.code, excerpt(found)[1]) == ("IRC2201", "<data")


def test_a_wrong_dim_is_named_although_an_attribute_is_misspelt(tmp_path: Path) -> None:
    first, second = changed(
        tmp_path,
        ('auto_pad="explicit"', 'auto_pad="explicitt"'),
        (r'(type="Convolution".*?<output>.*?)<dim>8</dim>', r"\1<dim>7</dim>"),
    )
    assert (first.code, second.code, second.severity) == ("IRC2204", "IRC3201", "warning")
    assert excerpt(second)[1] == "<dim>7</dim>"


def test_lines_that_are_long_are_cut_around_what_is_meant(tmp_path: Path) -> None:
    for before in (f'names="{"x" * 500}" ', " " * 400):
        found = changed(tmp_path, ('auto_pad="explicit"', f'{before}auto_pad="explicitt"'))[0]
        assert max(len(line) for line in str(found).splitlines()[2:4]) <= 80


def test_sizes_that_the_file_leaves_open_have_no_made_up_names() -> None:
    sink = Sink()
    sink.report(shape.MATMUL_INNER, Loc(), op='"d?3"', a="d?31 + 2*reduced?7", b="4?")
    assert sink.diagnostics[0].message == '"d?3": inner dimensions differ: ? + 2*? and 4?'


def test_findings_come_by_their_places_and_are_folded(tmp_path: Path) -> None:
    text = DIGITS.read_text("utf-8").replace('element_type="f32"', 'element_type="f33"')
    (tmp_path / "m.xml").write_text(text, "utf-8")
    found = irc.validate(tmp_path / "m.xml")
    places = [d.location.resolve() for d in found]
    assert places == sorted(places)
    same = [d for d in found if d.code == "IRC1065"]
    said = render_text(found)
    assert len(same) > 3
    assert said.count("IRC1065]") == 1
    assert f"{len(same) - 1} more like this: layer 1 " in said


def test_two_findings_alike_are_both_shown() -> None:
    found = [Diagnostic("IRC3104", "error", "differ", Loc("m", f"node {n}")) for n in range(2)]
    assert render_text(found).count("error[IRC3104]") == 2


def test_lines_are_broken_between_words() -> None:
    long = Diagnostic("IRC3104", "error", " ".join(["word"] * 40), Loc("a/" * 60, "node"))
    lines = render_text([long], width=80).splitlines()
    assert max(len(line) for line in lines if "a/" not in line) <= 80
    assert any("a/" * 60 in line for line in lines)


# ------------------------------------------------------------------------------ chains
def chain(declared: bool) -> onnx.ModelProto:
    """A chain of eight nodes with seven mistakes; all shapes between them are declared, or none."""
    make = helper.make_node
    nodes = [
        make("Conv", ["x", "w1"], ["c1"], kernel_shape=[3, 3], pads=[1, 1, 1, 1], stride=[2, 2]),
        make("Relu", ["c1"], ["r1"]),
        make("Conv", ["r1", "w2"], ["c2"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        make("Reluu", ["c2"], ["r2"]),
        make("MaxPool", ["r2"], ["p"]),
        make("Flatten", ["p"], ["f"], axis=9),
        make("Gemm", ["f", "w3"], ["g"]),
        make("Softmax", ["g"], ["y"], axis=5),
    ]
    shapes = {"c1": (8, 32, 32), "r1": (8, 32, 32), "c2": (16, 32, 32), "r2": (16, 32, 32), "p": (16, 16, 16)}
    info = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, ["N", *s])
        for n, s in {**shapes, "f": (4096,), "g": (10,), "x": (3, 32, 32), "y": (10,)}.items()
    ]
    sizes = {"w1": (8, 3, 3, 3), "w2": (16, 7, 3, 3), "w3": (4000, 10)}
    weights = [numpy_helper.from_array(np.zeros(s, np.float32), n) for n, s in sizes.items()]
    graph = helper.make_graph(nodes, "g", [info[7]], [info[8]], weights, value_info=info[:7] if declared else [])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def test_every_mistake_of_a_chain_is_found_at_once() -> None:
    found = irc.validate(chain(True))
    assert [d.code for d in found] == [
        *("IRC2206", "IRC3108", "IRC2001", "IRC2201"),
        *("IRC3106", "IRC3104", "IRC3106"),
    ]
    assert [d.severity for d in found[1:4]] == ["error"] * 3
    for follows in found[4:]:
        assert follows.severity == "warning"
        assert any(note.startswith("may follow from IRC2201 at graph main, node 4") for note in follows.notes)


def test_what_a_mistake_leaves_known_is_checked_without_declared_shapes() -> None:
    """All but the Gemm: what it gets depends on the kernel that the MaxPool lacks."""
    found = irc.validate(chain(False))
    assert [d.code for d in found] == ["IRC2206", "IRC3108", "IRC2001", "IRC2201", "IRC3106", "IRC3106"]
    assert [d.severity for d in found] == ["warning", *["error"] * 3, *["warning"] * 2]
    with_kernel = chain(False)
    with_kernel.graph.node[4].attribute.append(helper.make_attribute("kernel_shape", [2, 2]))
    assert "inner dimensions differ: 15376 and 4000" in " ".join(d.message for d in irc.validate(with_kernel))


def test_an_operand_that_is_wrong_by_itself_is_an_error_of_its_own() -> None:
    """Each QuantizeLinear has a zero point of a type that is not allowed, whatever the one before gives."""
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]> m (float[2,3] x) => (y)
        <float s = {0.5}, int32 z = {0}, int8 zero = {0}>
        { q = QuantizeLinear(x, s, z)  d = DequantizeLinear(q, s, zero)  y = QuantizeLinear(d, s, z) }"""
    )
    found = irc.validate(model)
    assert [(d.code, d.severity) for d in found] == [("IRC2104", "error")] * 2
    assert all("y_zero_point is i32" in d.message for d in found)


def test_one_mistake_in_a_hundred_nodes_has_one_suggestion() -> None:
    names = " ".join(f"v{k + 1} = Reluu(v{k})" for k in range(40))
    text = f'<ir_version: 8, opset_import: ["" : 17]> m (float[2] v0) => (float[2] v40) {{ {names} }}'
    found = irc.validate(onnx.parser.parse_model(text))
    assert {d.message for d in found} == {"there is no operation Reluu in ai.onnx opset 17; did you mean Relu?"}
    assert len(found) == 40 and "39 more like this" in str(render_text(found))


def test_a_node_is_printed_with_carets_below_its_attribute() -> None:
    found = irc.validate(chain(True))
    assert excerpt(found[4]) == ("   | f = Flatten <axis = 9> (p)", "axis = 9")
    assert excerpt(found[2]) == ("   | r2 = Reluu (c2)", "Reluu")


def test_doubt_ends_where_a_result_is_as_declared() -> None:
    model = chain(True)
    del model.graph.node[5].attribute[:]  # Flatten is right again, and gives what is declared
    model.graph.node[5].attribute.append(helper.make_attribute("axis", 1))
    model.graph.node[4].attribute.append(helper.make_attribute("kernel_shape", [2, 2]))
    model.graph.node[4].attribute.append(helper.make_attribute("strides", [2, 2]))
    codes = {d.code: d.severity for d in irc.validate(model)}
    assert codes["IRC3104"] == "error"


@pytest.mark.parametrize("declared", [True, False])
def test_what_follows_never_makes_a_model_valid(declared: bool) -> None:
    with pytest.raises(irc.InvalidModel):
        irc.load(chain(declared))
