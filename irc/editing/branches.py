"""Documents without the Ifs of which one body alone can run: it comes in the place of its node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

from irc.border.again import model_of
from irc.border.functions import renamed_attributes
from irc.border.read import read_model
from irc.border.support import bodies_of
from irc.diagnostics import Diagnostic, Sink
from irc.diagnostics.codes import conversion as codes
from irc.editing.extraction import needed_part
from irc.formats.document import RawGraph, RawModel, RawNode, RawValue
from irc.ir.graph import Graph
from irc.ir.names import unused
from irc.ops.control import known_condition

Keys = dict[str, str]


def take_known(raw: RawModel) -> RawModel:
    """Make the document with the known branches in place, in bodies too; the given one stays.

    What only their conditions needed is left out.  Without such an If it is the given one itself.
    """
    while True:
        known = _known(model_of(raw).graph)
        graph = _Taking(raw, known).graph(raw.graph) if known else raw.graph
        if graph is raw.graph:
            return raw
        raw = replace(raw, graph=graph)


def take_possible(raw: RawModel, sink: Sink) -> RawModel:
    """Make the document in which each If whose other body has errors, in every run, is the body that has none.

    Each is a note.  The given document is returned where that is no way to a document without errors.
    """
    findings, left_out = Sink(), dict[int, Diagnostic]()
    read_model(raw, findings, left_out)
    if findings.errors or not left_out:
        return raw
    taken: dict[int, bool] = {}
    for node in _nodes(raw.graph):
        for holds in (True, False) if node.type == "If" else ():
            why = left_out.get(id(_branch(node, not holds)))
            if why is not None:
                taken[id(node)] = holds
                branch = "else_branch" if holds else "then_branch"
                reason = f"{why.message} ({why.code}) in {why.location.where}" if why.location.where else why.message
                sink.report(codes.BRANCH_LEFT_OUT, node.loc, branch=branch, reason=reason)
    return replace(raw, graph=_Taking(raw, taken).graph(raw.graph))


def _nodes(graph: RawGraph) -> Iterator[RawNode]:
    """The nodes of a graph and of its bodies."""
    for node in graph.nodes:
        yield node
        for body in bodies_of(node):
            yield from _nodes(body)


def _known(graph: Graph) -> dict[int, bool]:
    """Find whether the condition of an If holds, where that is known, by the id of the file's node."""
    found: dict[int, bool] = {}
    for each in graph.nested():
        for node in each.nodes:
            origin = node.origin
            if origin is None or origin.form is None or origin.raw.type != "If" or origin.inputs[0] is None:
                continue
            holds = known_condition(origin.inputs[0])
            if holds is not None:
                found[id(origin.raw)] = holds
    return found


class _Taking:
    """Puts bodies in place, in a document whose keys stay unique."""

    def __init__(self, raw: RawModel, known: Mapping[int, bool]) -> None:
        self.raw, self.known = raw, known
        self.count = Counter(_defined(raw.graph))
        self.used = set(self.count)

    def graph(self, graph: RawGraph) -> RawGraph:
        """Put the known branches of a graph in place; the graph itself where there are none."""
        nodes: list[RawNode] = []
        constants = dict(graph.constants)
        instead: Keys = {}
        final = {v.key for v in graph.outputs}
        changed = False
        for old in graph.nodes:
            node = self._inside(old)
            changed = changed or node is not old
            node = _renamed(node, instead) if instead else node
            if id(old) not in self.known:
                nodes.append(node)
                continue
            body = _branch(node, self.known[id(old)])
            changed = True
            keys, given = self._keys(node, body, final)
            instead |= given
            constants |= {keys.get(k, k): t for k, t in body.constants.items()}
            nodes += [_renamed(n, keys, node.outputs) for n in body.nodes]
            nodes += self._copies(node, body, keys, given)
        if not changed:
            return graph
        return needed_part(replace(graph, nodes=nodes, constants=constants, values={}))

    def _inside(self, node: RawNode) -> RawNode:
        """The node with the known branches in its bodies in place; the node itself where there are none."""
        made = {id(body): self.graph(body) for body in bodies_of(node)}
        if all(id(body) == key for key, body in made.items()):
            return node
        attrs = {k: made.get(id(v), v) for k, v in node.attrs.items()}
        return replace(node, attrs=attrs, bodies={k: made[id(v)] for k, v in node.bodies.items()})

    def _keys(self, node: RawNode, body: RawGraph, final: set[str]) -> tuple[Keys, Keys]:
        """Say how keys of the body are called around it, and what stands for results of the node that have no maker.

        Only where the graph gives such a result must it have a node of its own, in ONNX.
        """
        keys = {k: unused(k, self.used) for k in _own(body) if self.count[k] > 1}
        keys |= _joined(node, body)
        made = {v.key for n in body.nodes for v in n.outputs}
        given: Keys = {}
        taken: set[str] = set()
        for outer, inner in _results(node, body):
            if inner in made and inner not in taken:
                keys[inner] = outer
                taken.add(inner)
            elif self.raw.format == "openvino" or outer not in final:
                given[outer] = keys.get(inner, inner)
        return keys, given

    def _copies(self, node: RawNode, body: RawGraph, keys: Keys, given: Keys) -> Iterator[RawNode]:
        """Make nodes that give a result of the graph which is an operand, a constant, or another result too."""
        outputs = {v.key: v for v in node.outputs}
        for outer, inner in _results(node, body):
            source = keys.get(inner, inner)
            if outer and source != outer and outer not in given:
                version = self.raw.opsets.get("", node.version)
                yield RawNode("Identity", version, "", outer, [source], [outputs[outer]], loc=node.loc)


def _defined(graph: RawGraph) -> Iterator[str]:
    """The keys that a graph and its bodies define."""
    yield from _own(graph)
    for node in graph.nodes:
        for body in bodies_of(node):
            yield from _defined(body)


def _own(graph: RawGraph) -> Iterator[str]:
    yield from (v.key for v in graph.inputs)
    yield from graph.constants
    yield from (v.key for n in graph.nodes for v in n.outputs if v.key)


def _branch(node: RawNode, holds: bool) -> RawGraph:
    """The body that runs: an attribute in ONNX, joined by port maps in OpenVINO."""
    name = "then" if holds else "else"
    found = node.bodies.get(f"{name}_body") or node.attrs[f"{name}_branch"]
    assert isinstance(found, RawGraph)
    return found


def _entries(node: RawNode, body: RawGraph, kind: str) -> Iterator[tuple[int, str]]:
    """The ports of an If of OpenVINO that the map joins to a body, and the ids of what they are joined to."""
    name = next((n for n, graph in node.bodies.items() if graph is body), "")
    for entry in node.extras.get(name.replace("_body", "_port_map"), ()):
        if entry["kind"] == kind:
            yield int(entry["external_port_id"]), str(int(entry["internal_layer_id"]))


def _joined(node: RawNode, body: RawGraph) -> Keys:
    """Say what the inputs of a body are around it."""
    inputs = {str(v.extras.get("id")): v.key for v in body.inputs}
    return {inputs[inner]: node.inputs[port] for port, inner in _entries(node, body, "input")}


def _results(node: RawNode, body: RawGraph) -> list[tuple[str, str]]:
    """Pair the results of an If that have a key with the keys that they have in the body."""
    if not node.bodies:
        pairs = [(v.key, inner.key) for v, inner in zip(node.outputs, body.outputs, strict=False)]
    else:
        inner = {str(v.extras.get("id")): v.key for v in body.outputs}
        ports = {port: inner[id] for port, id in _entries(node, body, "output")}
        pairs = [(v.key, ports[int(v.extras["port"])]) for v in node.outputs]
    return [(outer, key) for outer, key in pairs if outer]


def _renamed(node: RawNode, keys: Keys, results: list[RawValue] | None = None) -> RawNode:
    """The node with other keys; those that become results of the If take over what it declares of them."""
    declared = {v.key: v for v in results or ()}

    def value(v: RawValue) -> RawValue:
        key = keys.get(v.key, v.key)
        given = declared.get(key)
        if given is None:
            return v if key == v.key else replace(v, key=key, names=(key,) if v.names == (v.key,) else v.names)
        return replace(given, extras={**given.extras, **{k: x for k, x in v.extras.items() if k == "port"}})

    return replace(
        node,
        inputs=[keys.get(k, k) for k in node.inputs],
        outputs=[value(v) for v in node.outputs],
        attrs=renamed_attributes(node, lambda key: keys.get(key, key)),
    )
