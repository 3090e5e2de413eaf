"""Bodies of If, Loop and the like, while their node is read: `Body` makes a region of the file's graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from irc.diagnostics import Diagnostic, Sink, require
from irc.diagnostics.codes import operation as codes
from irc.formats.document import RawGraph, RawValue
from irc.ir.graph import Graph, Value
from irc.ir.types import Type


class GraphReader(Protocol):
    """What reads one graph: the part of `irc.border.read` that a body needs."""

    captured: dict[str, Value]
    left_out: dict[int, Diagnostic] | None

    def graph(self, raw: RawGraph, types: Sequence[Type] | None = None) -> Graph: ...


class Body:
    """A graph of the file inside of a node.

    `captures` are the values of the graph around it that it uses, constants left out.
    """

    captures: list[Value]

    def __init__(self, reader: Callable[[RawGraph, Sink], GraphReader], raw: RawGraph) -> None:
        self._make = reader
        self._findings = Sink()
        self._left_out: dict[int, Diagnostic] | None = None
        self._source = raw
        self._join(raw, {})

    def _join(self, raw: RawGraph, joined: Mapping[str, Value]) -> None:
        self._raw, self._joined = raw, joined
        values = self._reader().captured.values()
        self.captures = list(dict.fromkeys(v for v in values if v.const is None))

    def _reader(self) -> GraphReader:
        reader = self._make(self._raw, self._findings)
        reader.captured |= self._joined
        return reader

    def arrange(self, joined: Mapping[str, Value], outputs: Sequence[int]) -> None:
        """Change what the body declares, before it is read.

        joined: inputs, by their keys, that stand for values around the body; they become captures.  outputs: which of
        the outputs it has from now on.
        """
        left = [v for v in self._raw.inputs if v.key not in joined]
        given = replace(self._raw, inputs=left, outputs=[self._raw.outputs[i] for i in outputs])
        self._join(given, {**self._joined, **joined})

    @property
    def inputs(self) -> list[RawValue]:
        """What the body declares as its inputs."""
        return self._raw.inputs

    @property
    def outputs(self) -> list[RawValue]:
        """What the body declares as its outputs."""
        return self._raw.outputs

    def read(self, types: Sequence[Type], captured: Sequence[Value]) -> Graph:
        """Read the body as a region: inputs of these types, then one for each of the captured values.

        Raises Problem if the body has another number of inputs.  It may be read again, with other types: findings of
        the last time count.
        """
        given = len(self.inputs)
        facts = {"given": given, "what": "inputs", "needed": len(types)}
        require(given == len(types), codes.REGION_ARITY, op="the node", body="body", **facts)
        self._findings = Sink()
        reader = self._reader()
        region = reader.graph(self._raw, types)
        self._left_out = reader.left_out
        twins = dict(zip(self.captures, region.inputs[given:], strict=True))
        region.inputs[given:] = [twins.get(v) or region.new_value(v.name, v.type) for v in captured]
        return region

    @property
    def may_be_left_out(self) -> bool:
        """Whether the body has errors and the reader was told that one beside it may do instead."""
        return self._left_out is not None and bool(self._findings.errors)

    def leave_out(self) -> None:
        """Read the node without this body."""
        self._left_out = {id(self._source): self._findings.errors[0]}
        self._findings = Sink()

    def report(self, sink: Sink, left_out: dict[int, Diagnostic] | None) -> None:
        """Hand over what reading the body has found, and which bodies were left out."""
        for found in self._findings:
            sink.add(found)
        if left_out is not None:
            left_out |= self._left_out or {}
