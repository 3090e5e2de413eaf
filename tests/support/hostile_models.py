"""Models whose every text is hostile: names, sizes, variables, metadata, doc strings, domains, attributes."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from xml.sax.saxutils import quoteattr

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

MARK = "HOSTILE_TEXT_HAS_RUN"
"""A file that code out of a model would make in the current folder."""
_SHELL = f'system("touch {MARK}")'
_CONSTRUCTOR = f"__attribute__((constructor)) static void f(void) {{ extern int system(const char *); {_SHELL}; }}"
PAYLOADS = (
    f"*/ {_CONSTRUCTOR} /*",
    f"\n#error hostile\n{_CONSTRUCTOR}\n",
    "*??/\n/ int hostile = 1; /\\\n* ??/",
    "éé/",
    "ends with a backslash \\",
    "= (abort(), 1)",
    "%i0",
    "%?0",
    "d?1",
    f'"""\n__import__("os").{_SHELL}\n"""',
    f"'); __import__('os').{_SHELL}; ('",
    "# coding: utf-7",
    '"><script>alert(1)</script></title><b onload="alert(1)',
    "\x1b]0;title\x07\x1b[2J\x1b[8mhidden\u202ereversed\u2066\x9b31m",
    "a\r\n::error::[bold red]x[/nope] [text](https://example.com) %0A::error::",
    "../../../../../../tmp/" + MARK,
    "/absolute/../..",
    "a\0b",
    "HUGE_VAL",
    "INT64_MAX",
    "I",
    "linux",
    "errno",
    "int",
    "class",
    "ｘ",
    "x",
    "None",
    "__debug__",
    "__import__",
    "np",
    "inputs",
    "run",
    "irc_pool",
    "ctx",
    "out_dims",
    "memcpy",
    "tanhf",
    "CON",
    "-rf",
    "..",
    "file",
    "{0.__class__.__mro__} %s $V \\g<0> {x!r}",
    "n" * 20_000,
    "*/ " * 6_000,
    "*/" * 10_000,
    "a.b",
    "a_b",
    "A B",
)


class Texts:
    """Hands out a text for each place of a model, each text once: `given(place)` is what it is made of."""

    def __init__(self, given: Callable[[int], str]) -> None:
        self.given, self.count, self.taken = given, 0, set[str]()

    def __call__(self) -> str:
        text = wanted = self.given(self.count)
        while text in self.taken:
            text = f"{wanted}{self.count}{len(self.taken)}"
        self.taken.add(text)
        self.count += 1
        return text


def benign() -> Texts:
    return Texts(lambda k: f"name{k}")


def rotated(first: int) -> Texts:
    """All payloads in turn, from that one on."""
    return Texts(lambda k: PAYLOADS[(first + k) % len(PAYLOADS)])


def everywhere(payload: str) -> Texts:
    return Texts(lambda _: payload)


def of_xml(texts: Texts) -> Texts:
    """The same without what no XML document can hold."""
    return Texts(lambda k: re.sub(r"[\x00-\x08\x0b\x0c\x0e-\x1f]", "?", texts.given(k)))


def onnx_model(t: Texts, foreign: bool = False) -> ModelProto:
    """y = tanh(x w + b) in a function of a domain of its own, s = the shape of x, e = x over its axes.

    foreign: with an operation of another domain besides, which irc keeps and cannot run.
    """
    size, x, y, s, e, h, w, b, u, v = (t() for _ in range(10))
    domain, function = t(), t()
    row = numpy_helper.from_array(np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3), w)
    bias = numpy_helper.from_array(np.float32([1, 2, 3]), b)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid(domain, 1)]
    p, q, r = t(), t(), t()
    inside = [helper.make_node("Add", [p, p], [q], t()), helper.make_node("Tanh", [q], [r], t())]
    own = helper.make_function(domain, function, [p], [r], inside, opsets)
    nodes = [
        helper.make_node("MatMul", [x, w], [h], t(), doc_string=t()),
        helper.make_node("Add", [h, b], [u], t()),
        helper.make_node(function, [u], [v], t(), domain=domain),
        helper.make_node("Softmax", [v], [y], t()),
        helper.make_node("Shape", [x], [s], t()),
        helper.make_node("ReduceSum", [x], [e], t(), keepdims=0),
    ]
    results = [
        helper.make_tensor_value_info(y, TensorProto.FLOAT, None, t()),
        helper.make_tensor_value_info(s, TensorProto.INT64, None),
        helper.make_tensor_value_info(e, 1, None),
    ]
    if foreign:
        o = t()
        nodes.append(helper.make_node("ReadValue", [x], [o], t(), domain=domain, **{"hostile": t(), t(): [t()]}))
        results.append(helper.make_tensor_value_info(o, TensorProto.FLOAT, [t()]))
    given = [helper.make_tensor_value_info(x, TensorProto.FLOAT, [size, 4], t())]
    graph = helper.make_graph(nodes, t(), given, results, [row, bias], t())
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8, functions=[own], producer_name=t())
    helper.set_model_props(model, {t(): t()})
    model.doc_string = t()
    return model


def ir_model(t: Texts, path: Path) -> Path:
    """An OpenVINO IR with a variable: y = x + v, and v becomes y; both have a symbolic size."""
    x, y, s, z, b, rv, added, a, variable, net, key, value = (t() for _ in range(12))

    def port(number: int, sizes: tuple[int, ...] = (-1, 3), kind: str = "FP32", names: str = "") -> str:
        dims = "".join(f"<dim>{d}</dim>" for d in sizes)
        return f'<port id="{number}" precision="{kind}"{names}>{dims}</port>'

    def layer(number: int, name: str, kind: str, version: str, data: str, given: str, made: str) -> str:
        inside = data + (f"<input>{given}</input>" if given else "") + (f"<output>{made}</output>" if made else "")
        attributes = f'id="{number}" name={_quoted(name)} type="{kind}" version="{version}"'
        return f"<layer {attributes}>{inside}</layer>"

    scalar, vector = port(0, ()), port(1, (2,), "I64")
    state = f"<data variable_id={_quoted(variable)}/>"
    layers = [
        layer(
            0,
            x,
            "Parameter",
            "opset1",
            '<data shape="?,3" element_type="f32"/>',
            "",
            port(0, names=f" names={_quoted(x.replace(',', ';'))}"),
        ),
        layer(1, z, "Const", "opset1", '<data element_type="f32" shape="" offset="0" size="4"/>', "", scalar),
        layer(2, s, "ShapeOf", "opset3", '<data output_type="i64"/>', port(0), vector),
        layer(3, b, "Broadcast", "opset3", '<data mode="numpy"/>', scalar + vector, port(2)),
        layer(4, rv, "ReadValue", "opset3", state, port(0), port(1)),
        layer(5, added, "Add", "opset1", '<data auto_broadcast="numpy"/>', port(0) + port(1), port(2)),
        layer(6, a, "Assign", "opset3", state, port(0), port(1)),
        layer(7, y, "Result", "opset1", "", port(0), ""),
    ]
    edges = [(1, 0, 3, 0), (0, 0, 2, 0), (2, 1, 3, 1), (3, 2, 4, 0)]
    edges += [(0, 0, 5, 0), (4, 1, 5, 1), (5, 2, 6, 0), (5, 2, 7, 0)]
    joined = "".join(f'<edge from-layer="{i}" from-port="{j}" to-layer="{k}" to-port="{n}"/>' for i, j, k, n in edges)
    info = f"<rt_info><hostile {_attribute_name(key)}={_quoted(value)} value={_quoted(value)}/></rt_info>"
    path.write_text(
        f'<?xml version="1.0"?><net name={_quoted(net)} version="11"><layers>{"".join(layers)}</layers>'
        f"<edges>{joined}</edges>{info}</net>",
        "utf-8",
    )
    path.with_suffix(".bin").write_bytes(bytes(4))
    return path


def _quoted(text: str) -> str:
    return quoteattr(text, {"\n": "&#10;", "\r": "&#13;", "\t": "&#9;"})


def _attribute_name(text: str) -> str:
    return "k" + "".join(c for c in text if c.isascii() and c.isalnum())[:50]
