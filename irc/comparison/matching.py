"""Which tensors of two models are the same one: by the names that irc and other converters keep.

A tensor's own names count first (`names=` of an OpenVINO port, the name of an ONNX value), then the name of the layer
that has it as its only result.  Results of the layers of the graph itself are matched, not those of bodies.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from irc.border.support import captured_keys
from irc.formats.document import RawGraph, RawNode, RawValue
from irc.ir.types import DType, TensorType

SEEN = ("f16", "f32", "f64", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "bool")
"""Element types that every engine hands out as they are."""


@dataclass(frozen=True)
class Tensor:
    """A value of a document, with the layer that computes it; `layer` is None of an input."""

    key: str
    value: RawValue
    layer: RawNode | None

    @property
    def name(self) -> str:
        """What a user may call it."""
        return self.value.names[0] if self.value.names else self.key


@dataclass(frozen=True)
class Pair:
    """A tensor of one model and the same one of another."""

    a: Tensor
    b: Tensor


def pairs_of(a: RawGraph, b: RawGraph, outputs: Sequence[tuple[str, str]]) -> list[Pair]:
    """The tensors of both graphs that belong together, in topological order of the first; each once.

    outputs: keys of the outputs that belong together, whatever they are called.
    """
    first, second = tensors_of(a), tensors_of(b)
    chosen = {x: second[y] for x, y in outputs}
    taken = {tensor.key for tensor in chosen.values()}
    index = _index(t for t in second.values() if t.key not in taken)
    found: list[Pair] = []
    for tensor in first.values():
        other = chosen.get(tensor.key)
        if other is None and tensor.layer is not None:
            other = next((t for name in _names(tensor) if (t := index.get(name)) and _fit(tensor, t)), None)
            if other is None or other.key in taken:
                continue
            taken.add(other.key)
        if other is not None:
            found.append(Pair(tensor, other))
    return found


def tensors_of(graph: RawGraph) -> dict[str, Tensor]:
    """The values of the graph by key: inputs, then results in the order of the layers."""
    found = {v.key: Tensor(v.key, v, None) for v in graph.inputs}
    for node in graph.nodes:
        found.update({v.key: Tensor(v.key, v, node) for v in node.outputs if v.key})
    return found


def operands(graph: RawGraph, tensors: Sequence[str]) -> list[list[int]]:
    """For each of these tensors (keys in topological order) the nearest of them that it is computed from, by place."""
    place = {key: i for i, key in enumerate(tensors)}
    near: dict[str, frozenset[int]] = {}
    found: list[list[int]] = [[] for _ in tensors]
    for node in graph.nodes:
        used = [key for key in (*node.inputs, *captured_keys(node)) if key]
        leading = frozenset[int]().union(*({place[k]} if k in place else near.get(k, ()) for k in used))
        for value in node.outputs:
            near[value.key] = leading
            if value.key in place:
                found[place[value.key]] = sorted(leading)
    return found


def _index(tensors: Iterator[Tensor]) -> dict[str, Tensor]:
    """Tensors by name: a name of a tensor before one of a layer, of two alike the first."""
    known = list(tensors)
    found: dict[str, Tensor] = {}
    for names in (_own_names, _names):
        for tensor in known:
            if tensor.layer is not None:
                for name in names(tensor):
                    found.setdefault(name, tensor)
    return found


def _own_names(tensor: Tensor) -> list[str]:
    return [*tensor.value.names, tensor.key]


def _names(tensor: Tensor) -> list[str]:
    layer = tensor.layer
    only = layer is not None and layer.name and len([v for v in layer.outputs if v.key]) == 1
    return [*_own_names(tensor), *([layer.name] if layer is not None and only else [])]


def _fit(a: Tensor, b: Tensor) -> bool:
    """Whether types allow that both are the same tensor: alike but for the width of elements, of equal rank."""
    x, y = a.value.type, b.value.type
    if not isinstance(x, TensorType) or not isinstance(y, TensorType):
        return False
    ranks = None in (x.rank, y.rank) or x.rank == y.rank
    return ranks and _seen(x.dtype) and _seen(y.dtype) and x.dtype.is_float == y.dtype.is_float


def _seen(dtype: DType | None) -> bool:
    return dtype is not None and dtype.name in SEEN
