"""What of a model cannot be computed in a narrow float type, and why.

Asked of the document that will be written: which element types a node takes is said by the version that it has there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np

from irc.border.support import bodies_of, captured_keys, opset_label, title
from irc.formats.document import RawGraph, RawModel, RawNode, RawTensor
from irc.ir.graph import Graph, Origin, Value
from irc.ir.types import DType, TensorType, bf16, f16, f32, f64
from irc.opdef.registry import form_at
from irc.opdef.signature import Param

CONVERTED = frozenset({f64, f32, f16, bf16})
"""The types of floats that give way to the one asked for."""
SIZES = frozenset({"Shape", "ShapeOf", "Size"})
MAKERS = frozenset({"ConstantOfShape", "Expand", "Broadcast", "Tile", "RandomUniform", "RandomNormal", "Multinomial"})
"""What makes data of a shape."""
FEW = 16
"""So many numbers belong to the arithmetic of sizes; more are weights."""
MOVES = frozenset(
    {
        *("Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Slice", "StridedSlice", "Split"),
        *("VariadicSplit", "Concat", "Expand", "Broadcast", "Tile", "Gather", "Pad"),
    }
)
"""What only moves its first operand stays in the type that this has."""
BOUNDED = frozenset(
    {
        *("Softmax", "SoftMax", "Sigmoid", "HardSigmoid", "Tanh", "Erf", "Sin", "Cos", "Softsign", "SoftSign"),
        *("LayerNormalization", "InstanceNormalization", "GroupNormalization", "MVN", "NormalizeL2", "LpNormalization"),
    }
)
"""Small results, however large the operands."""
PRODUCTS = frozenset(
    {
        *("MatMul", "Gemm", "Conv", "ConvTranspose", "Convolution", "GroupConvolution", "ConvolutionBackpropData"),
        *("GroupConvolutionBackpropData", "DeformConv", "LSTM", "GRU", "RNN", "LSTMSequence", "GRUSequence", "Clip"),
        *("RNNSequence", "Attention", "MultiHeadAttention", "ScaledDotProductAttention"),
    }
)
"""Large only where the first operand is: of the others, weights and masks, nobody knows what becomes."""
KEEPS_TINY = frozenset({"Add", "Sum", "Max", "Maximum", "Sqrt", "Pow", "Power", "Reciprocal", "Expand", "Identity"})
"""Between a tiny number (an epsilon) and the division that it protects."""
EXACT_OPERANDS: Mapping[str, tuple[int, ...]] = {"Interpolate": (2,)}
"""Operands that sizes are computed from, though their type may be narrow."""
BLOCK = 1 << 16
"""Elements that are looked at, or converted, at a time, for the sake of memory."""
LARGEST_F16 = 65504.0
ONNX_BF16 = 13
"""The first opset that has bf16."""


class Wide:
    """`reasons`: why nodes are computed in their own type, by `id`; `exact`: constants that are no weights.

    forced: reasons that are known already.
    """

    def __init__(self, raw: RawModel, read: Graph, to: DType, forced: Mapping[int, str]) -> None:
        self.raw, self.to, self.forced = raw, to, forced
        self.origins = {id(o.raw): o for o in origins_of(read)}
        self.types = types_of(raw.graph, read, self.origins)
        self.multiplied = {k for n in raw.graph.nodes if n.type == "MatMul" for k in n.inputs}
        self.sizes: set[str] = set()
        self.large: dict[str, str] = {}  # values that may be, by the constant that they come from
        self.tiny: dict[str, str] = {}
        self.wide: set[str] = set()  # floats that wide nodes make
        self.exact: set[str] = set()
        self.reasons: dict[int, str] = {}
        self._ranges: dict[str, str] = {}
        for node in raw.graph.nodes:
            if self.floats(node):
                self._judge(node)
            self._note_sizes(node)

    def floats(self, node: RawNode) -> list[str]:
        """The operands and results that are floats to convert."""
        keys = [*node.inputs, *(v.key for v in node.outputs), *captured_keys(node)]
        return [k for k in keys if self.types.get(k) in CONVERTED]

    def takes(self, node: RawNode) -> list[bool]:
        """Whether each operand of a node may be of the narrow type."""
        exact = EXACT_OPERANDS.get(node.type, ())
        types = self._allowed(node)
        return [i not in exact and (t is None or self.to in t) for i, t in enumerate(types)]

    def range_of(self, key: str) -> str:
        """What the type cannot hold of a constant: see `range_of` below."""
        if key not in self._ranges:
            self._ranges[key] = range_of(self.raw.graph.constants[key], self.to)
        return self._ranges[key]

    # ------------------------------------------------------------------ one node
    def _judge(self, node: RawNode) -> None:
        reason = self.forced.get(id(node)) or self._own_reason(node)
        in_sizes = self._computes_sizes(node)
        reason = reason or ("it depends on sizes only" if in_sizes else "") or self._range_reason(node)
        if not reason and node.type in MOVES and node.inputs[:1] and node.inputs[0] in self.wide:
            reason = "it gives on what is not converted"
        if not reason:
            exact = [k for k, takes in zip(node.inputs, self.takes(node), strict=True) if not takes]
            self.exact.update(exact)
            return
        self.reasons[id(node)] = reason
        self.wide.update(v.key for v in node.outputs)
        if in_sizes:
            self.exact.update(node.inputs)

    def _own_reason(self, node: RawNode) -> str:
        """What stands against it by itself."""
        origin = self.origins.get(id(node))
        if origin is None or origin.form is None:
            return "irc does not know which types it takes"
        if any(bodies_of(node)):
            return "it has bodies"
        if any(v is not None and not isinstance(v.type, TensorType) for v in (*origin.inputs, *origin.outputs)):
            return "it is about sequences"
        if self.raw.format == "onnx" and self.to == bf16 and node.type != "Cast":
            return "ONNX Runtime computes nothing in bf16 on CPUs"
        if self._breaks_a_fusion(node):
            return f"ONNX Runtime 1.32 crashes where it fuses it with a MatMul in {self.to}"
        given = [t for key, t in zip(node.inputs, self.takes(node), strict=False) if self.types.get(key) in CONVERTED]
        if given and not any(given):
            return f"{node.type} of {opset_label(self.raw.format, node.version)} takes no {self.to}"
        return ""

    def _breaks_a_fusion(self, node: RawNode) -> bool:
        """Whether ONNX Runtime makes a FusedMatMul of it that transposes batches, for which it has no code in f16."""
        perm = node.attrs.get("perm")
        moves = node.type == "Transpose" and isinstance(perm, list) and len(perm) > 2 and perm[0] != 0
        return self.raw.format == "onnx" and moves and node.outputs[0].key in self.multiplied

    def _allowed(self, node: RawNode) -> list[frozenset[DType] | None]:
        """The element types that each operand may have in the version of the node; None: any."""
        found = form_at(self.raw.format, node.domain, node.type, node.version)
        if found is None:
            return [None] * len(node.inputs)
        form, cls = found
        sig = form.sig or cls.sig
        places: list[int | None] = list(range(len(node.inputs)))
        if form.sig is None:
            places = form.canonical(places)
            for index in sorted(form.as_inputs()):
                places += [None] * (index - len(places))
                places.insert(index, None)
        params: dict[int, Param] = {i: sig.param(k) for k, i in enumerate(places) if i is not None and sig.inputs}
        return [sig.allowed(params[i], form.types or None) if i in params else None for i in range(len(node.inputs))]

    # --------------------------------------------------------------------- sizes
    def _computes_sizes(self, node: RawNode) -> bool:
        """Whether its operands are sizes, and numbers that are no weights."""
        given = [k for k in node.inputs if k]
        constants = self.raw.graph.constants
        if node.type in MAKERS or not any(k in self.sizes for k in given):
            return False
        return all(k in self.sizes or (k in constants and self._is_few(constants[k])) for k in given)

    def _is_few(self, tensor: RawTensor) -> bool:
        return tensor.dtype not in CONVERTED or math.prod(tensor.shape) <= FEW

    def _note_sizes(self, node: RawNode) -> None:
        if node.type in SIZES or self._computes_sizes(node):
            self.sizes.update(v.key for v in node.outputs)

    # -------------------------------------------------------------------- ranges
    def _range_reason(self, node: RawNode) -> str:
        """What of its operands the type has no numbers for; notes whether the results are such, too."""
        constants = self.raw.graph.constants
        own = [k for k in node.inputs if k in constants and constants[k].dtype in CONVERTED]
        held = {"large": self.large, "tiny": self.tiny}
        for kind, what in (("large", f"beyond the range of {self.to}"), ("tiny", f"that {self.to} has only 0 for")):
            source = next((k for k in own if self.range_of(k) == kind), None)
            passed = next((k for k in node.inputs if k in held[kind]), None)
            if source is None and passed is None:
                continue
            root = constants[source].name if source is not None else held[kind][passed or ""]
            if self._stays(kind, node, passed is not None and passed == node.inputs[0]):
                held[kind].update((v.key, root) for v in node.outputs)
            return f'"{root}" has numbers {what}'
        return ""

    def _stays(self, kind: str, node: RawNode, first: bool) -> bool:
        """Whether the results of such operands are such numbers; `first`: the first operand is computed and is."""
        if kind == "tiny":
            return node.type in KEEPS_TINY
        return node.type not in BOUNDED and (first or node.type not in PRODUCTS)


def origins_of(graph: Graph) -> Iterator[Origin]:
    """The nodes of the file that a graph was read from."""
    yield from {id(n.origin): n.origin for n in graph.nodes if n.origin is not None}.values()
    yield from (origin for origin, _ in graph.extras.get("constant_nodes", []))


def types_of(raw: RawGraph, read: Graph, origins: Mapping[int, Origin]) -> dict[str, DType]:
    """The element types of the tensors of a document, by key."""
    found = {key: t.dtype for key, t in raw.constants.items()}
    pairs: list[tuple[str, Value]] = [(v.key, value) for v, value in zip(raw.inputs, read.inputs, strict=True)]
    for node in raw.nodes:
        origin = origins.get(id(node))
        if origin is not None:
            pairs += [(v.key, value) for v, value in zip(node.outputs, origin.outputs, strict=False)]
    return found | {key: value.dtype for key, value in pairs if key and isinstance(value.type, TensorType)}


def range_of(tensor: RawTensor, to: DType) -> str:
    """ "large" where a finite number is beyond the range of a type, "tiny" where a single one becomes 0; else ""."""
    if to != f16:
        return ""
    array = np.asarray(tensor.load()).reshape(-1)
    with np.errstate(all="ignore"):
        if array.size == 1 and array[0] != 0 and array[0].astype(to.numpy) == 0:
            return "tiny"
        for at in range(0, array.size, BLOCK):
            block = array[at : at + BLOCK].astype(np.float64)
            if np.any(np.isfinite(block) & (np.abs(block) > LARGEST_F16)):
                return "large"
    return ""


def called(node: RawNode) -> str:
    """A node as the findings name it."""
    return title(node) if node.name else f'{node.type} of "{node.outputs[0].key}"'
