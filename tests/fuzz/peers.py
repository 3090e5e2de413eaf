"""A graph computed by irc in C and NumPy, by ONNX Runtime and by OpenVINO, against the references."""

from __future__ import annotations

import contextlib
import traceback
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np

import irc
from irc.ir.graph import Model, Value
from irc.ir.types import TensorType
from tests.fuzz.graphs import Drawn
from tests.fuzz.isolation import place, renew_time
from tests.fuzz.oracle import DATA_CODES, Finding, plain

Array = np.ndarray[Any, Any]
TOLERANCES = {"f64": 1e-9, "f32": 2e-4, "f16": 2e-2, "bf16": 1.2e-1}
"""Relative to the largest element of a result, and never below that of 1; narrower floats have two bits or three."""
PLAIN = frozenset({"f64", "f32", "f16", "i64", "i32", "i16", "i8", "u64", "u32", "u16", "u8", "bool"})
"""Types that the peers take as NumPy arrays."""
SECONDS = 60.0
"""For a compiler of C, which takes most of the time."""


def compare(who: str, drawn: Drawn, folder: Path) -> list[Finding]:
    """What is wrong with one party's results; to be called in a child, because it runs code made from the graph."""
    renew_time(SECONDS)
    if who not in PEERS:
        return by_irc(who, drawn)
    plain_types = all(v.dtype.name in PLAIN for v in (*drawn.model.inputs, *drawn.model.outputs))
    if not plain_types or deviates(who, drawn.model) or has_empty_sequence(drawn) or works_on_nothing(who, drawn):
        return []
    got = PEERS[who](drawn, folder)
    return different(who, drawn, got) if got is not None else []


def by_irc(backend: str, drawn: Drawn) -> list[Finding]:
    """What is wrong with irc's own results: exceptions, findings of irc's own or of the C compiler, numbers."""
    try:
        got = irc.compile(drawn.model, backend=backend, cache=False)(drawn.feeds)
    except irc.CompileError as e:
        if any(d.code.startswith(("IRC9", "IRC6")) for d in e.diagnostics):
            return [Finding(backend, e.diagnostics[0].code, plain(str(e)), str(e))]
        return []  # C or irc has no words for it, and says so
    except irc.RunError as e:
        if e.diagnostics[0].code in DATA_CODES:
            return []  # the references broadcast a size of 1 where the operation demands equal ones
        return [Finding(backend, e.diagnostics[0].code, plain(str(e)), "".join(traceback.format_exception(e)))]
    except Exception as e:
        trace = "".join(traceback.format_exception(e))
        return [Finding(backend, plain(f"{type(e).__name__}: {e}"), place(trace), trace)]
    return different(backend, drawn, got)


def different(who: str, drawn: Drawn, results: list[Array]) -> list[Finding]:
    """A finding for the first output that is not the reference's within the tolerance of its type."""
    for value, got, want in zip(drawn.model.outputs, results, drawn.wanted, strict=True):
        got, want = np.asarray(got), np.asarray(want)
        wrong = ""
        if got.shape != want.shape or got.dtype != want.dtype:
            wrong = f"{got.dtype}{got.shape}, want {want.dtype}{want.shape}"
        elif not close(got, want, tolerance(drawn.model, value)):
            wrong = f"{got!r}\nwant {want!r}"
        if wrong:
            return [Finding(who, "differs", operations(value), wrong)]
    return []


def tolerance(model: Model, value: Value) -> float:
    """The tolerance of the least precise type that a value is computed from."""
    if value.producer is None:
        return 0
    nodes = nx.ancestors(model.graph.dag, value.producer) | {value.producer}
    kinds = {v.dtype for n in nodes for v in (*n.operands, *n.outputs) if isinstance(v.type, TensorType)}
    return max((TOLERANCES.get(k.name, 0.5) for k in kinds if k.is_float), default=0)


def close(got: Array, want: Array, limit: float) -> bool:
    if want.dtype.kind in "biu" or want.dtype.name.startswith(("int", "uint")):
        return bool(np.array_equal(got, want))
    got, want = got.astype(np.float64), want.astype(np.float64)
    scale = max(1.0, float(np.max(np.abs(want), initial=0)))
    return bool(np.allclose(got, want, rtol=limit, atol=limit * scale, equal_nan=True))


def operations(value: Value) -> str:
    """The operation that computes a value, and those that compute its operands: the name of a bucket."""
    node = value.producer
    if node is None:
        return "input"
    before = sorted({v.producer.op.name for v in node.operands if v.producer is not None})
    return f"{node.op.name}({', '.join(before)})"


# --------------------------------------------------------------------------------------- peers
def written(model: Model, path: Path, **options: Any) -> bool:
    """Whether irc can write the model there."""
    with contextlib.suppress(irc.ConversionError):
        irc.save(model, path, **options)
        return True
    return False


def onnxruntime(drawn: Drawn, folder: Path) -> list[Array] | None:
    """ONNX Runtime's results; None where it has no kernel, or ONNX no words."""
    import onnxruntime as ort

    path = folder / "peer.onnx"
    if not written(drawn.model, path):
        return None
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        names = [i.name for i in session.get_inputs()]
        return list(session.run(None, dict(zip(names, drawn.feeds, strict=True))))
    except Exception:  # of its own classes: no kernel for a type, an opset that is too new
        return None


def openvino(drawn: Drawn, folder: Path) -> list[Array] | None:
    """OpenVINO's results on the CPU; None where it refuses, or the IR has no words."""
    import openvino as ov

    path = folder / "peer.xml"
    doubles = any(v.type is not None and str(v.type).startswith("f64") for v in drawn.model.graph.values())
    if doubles or not written(drawn.model, path):  # the plugin computes f64 in f32
        return None
    try:
        core = ov.Core()
        hints = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1}
        compiled = core.compile_model(core.read_model(path), "CPU", hints)
        results = compiled({i: np.ascontiguousarray(a) for i, a in enumerate(drawn.feeds)})
        return [np.asarray(results[i]) for i in range(len(drawn.model.outputs))]
    except Exception:  # RuntimeError and others for what the plugin does not have
        return None


DEVIATIONS: tuple[tuple[str, str, str], ...] = (
    ("onnxruntime", "Resize", "coordinates='align_corners'"),  # rounds the new size first; ONNX's node tests do not
    ("onnxruntime", "TopK", "sort='none'"),  # in any order
    ("openvino", "TopK", "sort='none'"),
    ("onnxruntime", "MeanVarianceNormalization", ""),  # E[x²] - E[x]² of equal elements may be below 0: NaN
    *(  # these: see ADR 0008
        ("onnxruntime", layer, activation)
        for layer in ("RNN", "GRU", "LSTM")
        for activation in ("'Affine'", "'ThresholdedRelu'")
    ),
    ("onnxruntime", "GroupNormalization", "-> f64"),
    ("onnxruntime", "Shrink", "-> f64"),
    *(("openvino", name, f"-> {kind}") for name in ("Add", "Sub", "Mul") for kind in ("i8", "u8")),
    ("openvino", "HardSigmoid", ""),
    ("openvino", "SquaredDifference", "-> i8"),
    ("openvino", "SquaredDifference", "-> u8"),
    ("openvino", "Div", "-> i"),
    ("openvino", "Div", "-> u"),
    ("openvino", "Mod", "-> i"),
    ("openvino", "Mod", "-> u"),
    ("openvino", "ScatterElements", "reduction='mean'"),
    ("openvino", "RNNSequence", ""),
    ("openvino", "Resize", "antialias=True"),
    ("openvino", "Interpolate", "antialias=True"),
    ("openvino", "InterpolateBoth", "antialias=True"),
    ("openvino", "Interpolate", "bicubic_pillow"),
    ("openvino", "ArgMax", "-> i"),
    ("openvino", "ArgMin", "-> i"),
)
"""Peer, operation and a part of its attributes or of its first result's type with which the peer gives other numbers
than the specification."""


def deviates(peer: str, model: Model) -> bool:
    """Whether a graph has an operation that this peer is known to compute in another way."""
    return any(
        who == peer and node.op.name == name and attribute in f"{node.op} -> {node.outputs[0].type}"
        for who, name, attribute in DEVIATIONS
        for node in model.graph.nodes
    )


OF_NOTHING = {"onnxruntime": "Reduce", "openvino": "Pad"}
"""Peer → how operations are called of whose operands without elements it makes nonsense: ADR 0008."""


def works_on_nothing(peer: str, drawn: Drawn) -> bool:
    """Whether one of those operations gets an operand without elements."""
    nodes = [n for n in drawn.model.graph.nodes if n.op.name.startswith(OF_NOTHING.get(peer, "?"))]
    return any(np.size(drawn.known[v]) == 0 for n in nodes for v in n.inputs[:1] if v in drawn.known)


def has_empty_sequence(drawn: Drawn) -> bool:
    """Whether a recurrent operation may get a sequence of length 0, whose last state the peers set to 0: ADR 0008."""
    feeds = dict(zip(drawn.model.inputs, drawn.feeds, strict=True))
    for node in drawn.model.graph.nodes:
        lengths = node.inputs[4] if node.op.name in ("RNN", "GRU", "LSTM") and len(node.inputs) > 4 else None
        if lengths is not None:
            given = lengths.array if lengths.const is not None else feeds.get(lengths)
            if given is None or not np.all(np.asarray(given) > 0):
                return True
    return False


PEERS = {"onnxruntime": onnxruntime, "openvino": openvino}
WHO = ("numpy", "c", *PEERS)
