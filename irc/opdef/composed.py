"""Operators of a file that are read as the operations that they are composed of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from irc.ir.graph import Value
from irc.opdef.builder import Builder
from irc.opdef.codecs import Codec
from irc.opdef.forms import INHERIT, MICROSOFT, Attributes, Form, Read, Results, Types
from irc.opdef.reference import as_list
from irc.opdef.registry import find_op


def composed(name: str) -> Read:
    """Make the `read` that decomposes the operation of that name at once, so that every pass sees its parts.

    While a size is unknown it stays in one piece: a writer says the sizes of its parts in terms of its operands.
    """

    def read(b: Builder, a: Attributes, *operands: Value | None) -> Results:
        cls = find_op(name)
        op = cls(**{k: v for k, v in vars(a).items() if k in cls.__dataclass_fields__})
        if cls.decompose is None or any(v is not None and not v.tensor.is_static for v in operands):
            return b.add_all(op, *operands)
        results = as_list(cls.decompose(op, b, *operands))[: a.outputs]
        _remove_unused(b, results)
        return results

    return read


def _remove_unused(b: Builder, results: Sequence[Value]) -> None:
    """Remove what was made for results that the node of the file does not have."""
    made = b.origin.nodes if b.origin is not None else []
    for node in reversed(list(made)):
        if not any(v.uses or v in results for v in node.outputs):
            b.graph.remove(node)
            made.remove(node)


def contributed(
    name: str,
    attrs: Mapping[str, Codec] | None = None,
    T: Types | Mapping[str, Types] = INHERIT,
    read: Read | None = None,
) -> Form:
    """Make the row of an operator of ONNX Runtime that is read as what it is composed of, unless `read` is given."""
    return Form(name, 1, attrs or {}, T, read=read or composed(name), direct=True, domain=MICROSOFT)
