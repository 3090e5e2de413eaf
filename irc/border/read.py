"""RawModel → Model: each layer of the file becomes canonical operations, typed as it is read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, cast

import networkx as nx

from irc.border import support
from irc.border.bodies import Body
from irc.border.doubts import Doubts, follows, may_follow
from irc.border.functions import Functions
from irc.border.presumed import presumed
from irc.diagnostics import Diagnostic, IrcError, Loc, Problem, Sink
from irc.diagnostics.codes import container_onnx as onnx_codes, operation as codes, shape as shape_codes
from irc.diagnostics.core import as_written, made
from irc.formats.document import RawFunction, RawGraph, RawModel, RawNode, RawTensor, RawValue
from irc.ir.graph import Constant, Graph, Model, Node, Origin, Value
from irc.ir.types import TensorType, Type, UnknownRank, dynamic
from irc.opdef.base import Op
from irc.opdef.builder import Builder
from irc.opdef.codecs import AsInput, Reading
from irc.opdef.extent import require_possible
from irc.opdef.forms import Attributes, Form
from irc.opdef.opaque import Opaque
from irc.opdef.registry import FORMS, form_at, forms_of

PRESUMPTIONS = 200
"""Nodes of a graph whose results are presumed: each takes time, and as many show what there is to see."""


class _Reported(Exception):
    """A node cannot be read, and the sink has been told why."""


def read_model(raw: RawModel, sink: Sink, left_out: dict[int, Diagnostic] | None = None) -> Model:
    """Every layer read; findings go to the sink, and what could not be read becomes `Opaque`.

    left_out: an If of which one body alone has errors is read as the other; gets the first of these errors by the id of
    the file's body.
    """
    graph = _Reader(raw, sink, left_out).graph(raw.graph)
    return Model(
        graph,
        raw.format,
        raw.version,
        dict(raw.opsets),
        list(raw.functions),
        dict(raw.metadata),
        dict(raw.extras),
        raw.file,
    )


class _Reader:
    """Reads one graph; `known` maps the file's keys to Values."""

    def __init__(self, raw: RawModel, sink: Sink, left_out: dict[int, Diagnostic] | None) -> None:
        self.raw, self.sink, self.format = raw, sink, raw.format
        self.left_out = left_out
        self.functions = Functions(raw, sink)
        self.known: dict[str, Value] = {}
        self.unknown_opsets: set[str] = set()
        self.captured: dict[str, Value] = {}  # of a body: values of the graph around it
        self.bodies: list[Body] = []  # those of the node that is being read
        self.doubts = Doubts()
        self.meant: tuple[Form, type[Op]] | None = None  # what the unknown operation that is being read may be
        self.presumptions = 0
        self.near: dict[str, str | None] = {}  # by unknown operation, what was probably meant
        self.out = Graph()

    def graph(self, raw: RawGraph, types: Sequence[Type] | None = None) -> Graph:
        """Read a graph, whose inputs have these types where they do not have those that it declares."""
        graph = self.out = Graph(raw.name)
        graph.extras = {**raw.extras, "values": raw.values}
        if self.format == "onnx":  # its keys are names that users see: nothing made here may take one
            keys = [v.key for n in raw.nodes for v in n.outputs] + list(raw.constants)
            graph.reserve(keys)
        for i, value in enumerate(raw.inputs):
            type = (value.type if types is None else types[i]) or TensorType(dynamic, None)
            with self.sink.catching(value.loc):
                require_possible("an input", type)
            self.known[value.key] = graph.add_input(self._name(value), type, **_fields(value))
        if types is not None:
            self._capture(graph)
        for key, tensor in raw.constants.items():
            self.known[key] = self._constant(key, tensor)
        graph.extras |= {"constant_nodes": [], "order": ordered(raw.nodes), "constants": list(raw.constants)}
        for node in graph.extras["order"]:
            self.node(node)
        graph.outputs = [self.known[v.key] for v in raw.outputs if v.key in self.known]
        graph.extras["outputs"] = list(raw.outputs)
        return graph

    def body(self, raw: RawGraph, sink: Sink) -> _Reader:
        """Make a reader for a body of the node that is being read; it knows what the body captures."""
        inner = _Reader(self.raw, sink, None if self.left_out is None else {})
        inner.unknown_opsets, inner.doubts = self.unknown_opsets, self.doubts
        inner.captured = {k: self.known[k] for k in support.free_keys(raw) if k in self.known}
        constants = [v for v in inner.captured.values() if v.const is not None]
        self.out.extras.setdefault("captured", []).extend(constants)
        return inner

    def _capture(self, graph: Graph) -> None:
        """Make inputs of a body for the values that it captures, one for each, and constants for constants."""
        twins: dict[Value, Value] = {}
        for key, outer in self.captured.items():
            if outer not in twins:
                fields = {"contents": outer.contents, "assumed": outer.assumed, "loc": outer.loc}
                if outer.const is not None:
                    twins[outer] = graph.add_constant(outer.const, outer.name, loc=outer.loc)
                else:
                    twins[outer] = graph.add_input(outer.name, outer.type, **fields)
            self.known[key] = twins[outer]

    def _name(self, value: RawValue) -> str:
        names = (*value.names[:1], value.extras.get("layer_name"), value.key)
        return next((n for n in names if n), "input")  # without a name: an error that is reported already

    def _constant(self, key: str, tensor: RawTensor) -> Value:
        fields: dict[str, Any] = {"names": tuple(tensor.extras.get("names", ())), "loc": tensor.loc}
        fields["extras"] = {**tensor.extras, "key": key}
        if "unread" in tensor.extras:  # an error that is reported already: its users are checked against its type
            value = self.out.new_value(tensor.name or key, tensor.extras["unread"], **fields)
        else:
            const = Constant(tensor.dtype, tensor.shape, tensor.load)
            value = self.out.add_constant(const, tensor.name or key, **fields)
        if self.format == "onnx":
            value.name = key
        return value

    # ------------------------------------------------------------------- one node
    def _computes_nothing(self, raw: RawNode) -> bool:
        """Whether no result needs a node and an operand is missing, which is no error where nothing looks at it."""
        return bool(raw.extras.get("dead")) and any(not key or key not in self.known for key in raw.inputs)

    def node(self, raw: RawNode) -> None:
        """Read a node, whose results are known then: as `Opaque`, with a finding, where that fails."""
        if self._computes_nothing(raw):
            return
        inputs = [self._operand(key) for key in raw.inputs]
        before, errors = len(self.out), self.sink.error_count
        doubt = self.doubts.cause(self.doubts.operands(inputs, raw))
        try:
            self._node(raw, inputs)
            refused = False
        except _Reported:
            self._remake(raw, inputs, before)
            refused = True
        except Problem as p:
            self._refuse(raw, inputs, p, doubt)
            self._remake(raw, inputs, before)
            refused = True
        except (IrcError, OSError):
            raise
        except Exception as e:  # a mistake of irc at this node is none of the others
            self.sink.crash(e, raw.loc, _operand_notes(inputs))
            self._remake(raw, inputs, before)
            refused = True
        results = [(v, self.known[v.key]) for v in raw.outputs if v.key in self.known]
        if self.sink.error_count > errors:
            self.doubts.mark((value for _, value in results), self.sink.errors[-1])
        elif doubt is not None:
            if refused:
                self.doubts.mark((value for _, value in results), doubt)
            else:
                self.doubts.spread(results, doubt)

    def _refuse(self, raw: RawNode, inputs: list[Value | None], p: Problem, doubt: Diagnostic | None) -> None:
        """Report why a node cannot be read; as a consequence where its operands are in doubt already."""
        label = {"op": self._title(raw)} if "op" in p.facts else {}
        found = made(p.code, raw.loc, p.notes + _operand_notes(inputs), {**p.facts, **label})
        certain = doubt is None or not may_follow(p) or self.doubts.cause(self._blamed(raw, inputs, p)) is None
        self.sink.add(found if certain or doubt is None else follows(found, doubt))

    def _blamed(self, raw: RawNode, inputs: list[Value | None], p: Problem) -> list[Value | None]:
        """The operands that a problem is about: one, if that alone has a type that is not allowed, else all."""
        row = form_at(self.format, raw.domain, raw.type, raw.version)
        if row is None or p.code is not codes.TYPE_NOT_ALLOWED or row[0].as_inputs():
            return inputs
        operands = inputs if row[0].sig else row[0].canonical(inputs)
        params = (row[0].sig or row[1].sig).inputs
        one = [v for param, v in zip(params, operands, strict=False) if param.name == p.facts.get("operand")]
        return one if len(one) == 1 and not any(param.variadic for param in params) else inputs

    def _remake(self, raw: RawNode, inputs: list[Value | None], before: int) -> None:
        """Keep a node that could not be read as it stands in the file."""
        self._unmake(before)
        self._opaque(raw, inputs, self._presumed(raw, inputs))

    def _presumed(self, raw: RawNode, inputs: list[Value | None]) -> tuple[Type | None, ...]:
        """The types that the results of a node probably have which could not be read, if the file declares none."""
        row = form_at(self.format, raw.domain, raw.type, raw.version)
        if row is None or self.presumptions == PRESUMPTIONS or all(v.type is not None for v in raw.outputs):
            return ()
        self.presumptions += 1

        def read(trial: RawNode, operands: list[Value | None]) -> tuple[Type | None, ...]:
            try:
                return self._types_as(trial, *row, operands)
            except Exception:  # tells nothing; why the node itself cannot be read is reported
                return ()

        return presumed(read, raw, row[0], inputs)

    def _node(self, raw: RawNode, inputs: list[Value | None]) -> None:
        support.compare_inputs(self.sink, inputs, raw)
        function = self.functions.find(raw)
        if function is not None:
            self._call(raw, function, inputs)
            return
        found = self._form(raw)
        if found is None:
            types = self._types_as(raw, *self.meant, inputs) if self.meant is not None else ()
            self._opaque(raw, inputs, types)
            return
        form, cls = found
        before = len(self.out)
        try:
            values = self._read(raw, form, cls, inputs)
        except UnknownRank:
            self._unmake(before)
            if not self.sink.errors:  # else a mistake that is reported may be why it is unknown
                op = self._label(raw, form)
                self.sink.report(shape_codes.RANK_UNKNOWN, raw.loc, _operand_notes(inputs), op=op)
            self._opaque(raw, inputs)
            return
        if len(raw.outputs) > len(values):
            op = self._label(raw, form)
            self.sink.report(codes.TOO_MANY_OUTPUTS, raw.loc, op=op, given=len(raw.outputs), most=len(values))
        for i, (declared, value) in enumerate(zip(raw.outputs, values, strict=False)):
            self._bind(declared, value, raw, i)

    def _types_as(self, raw: RawNode, form: Form, cls: type[Op], inputs: list[Value | None]) -> tuple[Type | None, ...]:
        """The types of its results if a node were this operation; none where it cannot be."""
        before, sink = len(self.out), self.sink
        self.sink = Sink()
        try:
            return tuple(v.type for v in self._read(raw, form, cls, inputs))
        except (Problem, _Reported):
            return ()
        finally:
            self.sink = sink
            self._unmake(before)

    def _made_since(self, count: int) -> list[Node]:
        """The nodes added since the graph had that many."""
        return list(islice(self.out.dag, count, None))

    def _unmake(self, count: int) -> None:
        """Remove the nodes added since the graph had that many."""
        for node in reversed(self._made_since(count)):
            self.out.remove(node)

    def _operand(self, key: str) -> Value | None:
        if not key:
            return None
        if key not in self.known:  # the reader has reported it
            self.known[key] = self.out.new_value(key, TensorType(dynamic, None))
        return self.known[key]

    def _title(self, raw: RawNode) -> str:
        """How messages call a node: as `_label` does where a row reads it."""
        found = form_at(self.format, raw.domain, raw.type, raw.version)
        return raw.type if found is None else self._label(raw, found[0])

    def _label(self, raw: RawNode, form: Form) -> str:
        """How messages call the operation: `Mul-7`, `Multiply (opset1)`."""
        return f"{raw.type}-{form.since}" if self.format == "onnx" else f"{raw.type} (opset{form.since})"

    def _read(self, raw: RawNode, form: Form, cls: type[Op], inputs: list[Value | None]) -> tuple[Value, ...]:
        label = self._label(raw, form)
        fields, unread = self._attributes(raw, form, label)
        sig = form.sig or cls.sig
        origin = Origin(self.format, raw, form, tuple(inputs), ())
        b = Builder(self.out, raw.name, raw.loc, origin, label)
        operands = self._with_attribute_operands(form, raw, form.canonical(inputs), label, b)
        # The row's own operands (before attributes became operands) decide arity and types.
        sig.check(label, inputs if form.sig else operands, form.types or None)
        if unread:
            raise _Reported
        if form.read is not None:
            made = form.read(b, Attributes(**fields, outputs=len(raw.outputs), opset=raw.version), *operands)
            for body in self.bodies:
                body.report(self.sink, self.left_out)
        else:
            made = b.add_all(cls(**{k: v for k, v in fields.items() if k in cls.__dataclass_fields__}), *operands)
        several = isinstance(made, tuple | list)
        values: tuple[Value, ...] = tuple(cast("Iterable[Value]", made)) if several else (cast("Value", made),)
        if not inputs and not origin.nodes and len(values) == 1 and values[0].const is not None:
            self.out.extras["constant_nodes"].append((origin, values[0].const))
        else:
            values = tuple(b.Identity(v) if _is_foreign(v, origin) else v for v in values)
        origin.outputs = values[: len(raw.outputs)]
        for node in origin.nodes:
            if len(origin.nodes) == 1:
                node.name = raw.name
        return values

    def _attributes(self, raw: RawNode, form: Form, label: str) -> tuple[dict[str, Any], bool]:
        """Decode the node's attributes by the row's codecs; those that are unknown or wrong are reported.

        Of a word that is misspelt, what was probably meant is taken; True where nothing can be, for any of them.
        """
        fields: dict[str, Any] = {}
        self.bodies, unread = [], False
        for name, codec in form.attrs.items():
            if isinstance(codec, AsInput):
                continue
            r = Reading(label, name, self.format, self.sink, raw.loc, self._body, self._value)
            try:
                value = codec.decode(raw.attrs[name], r) if name in raw.attrs else codec.absent(r)
            except Problem as p:
                self.sink.report(p.code, raw.loc, p.notes, **{**p.facts, "attribute": p.facts.get("attribute", name)})
                value, unread = p.meant, unread or p.meant is None
            fields[codec.field(name)] = value
        for name in raw.attrs:
            if name not in form.attrs and not support.is_ignored_attribute(self.format, name):
                near = self.sink.nearest(name, form.attrs)
                advice = f"did you mean {near}?" if near else f"remove it, or see the attributes of {label}"
                self.sink.report(codes.UNKNOWN_ATTRIBUTE, raw.loc, op=label, attribute=name, advice=advice)
        fields |= {name: self._body(body) for name, body in raw.bodies.items()}
        if raw.bodies:
            fields |= {"joints": raw.extras, "ports": [str(v.extras.get("port")) for v in raw.outputs]}
        return _split_pads(fields), unread

    def _body(self, raw: RawGraph) -> Body:
        self.bodies.append(Body(self.body, raw))
        return self.bodies[-1]

    def _value(self, name: str, own: bool) -> Value:
        """The value that an attribute names.  Raises Problem: there is none, or `own` and it is captured."""
        if name not in self.known:
            advice = "correct the name; it is case-sensitive"
            raise Problem(onnx_codes.UNDEFINED_VALUE, user="an attribute names", name=name, advice=advice)
        if own and name in self.captured:
            raise Problem(codes.NO_GRADIENT, through=f'the graph around this one, which has "{name}"')
        return self.known[name]

    def _with_attribute_operands(
        self, form: Form, raw: RawNode, inputs: list[Value | None], label: str, b: Builder
    ) -> list[Value | None]:
        """Operands of the canonical operation: the node's, and constants for AsInput attributes."""
        for index, (name, codec) in sorted(form.as_inputs().items()):
            while len(inputs) < index:
                inputs.append(None)
            r = Reading(label, name, self.format, self.sink, raw.loc)
            given = raw.attrs.get(name)
            if given is None:
                given = codec.absent(r)
            made = None
            if given is not None:
                dtype = codec.dtype or (inputs[0].dtype if inputs and inputs[0] is not None else dynamic)
                made = b.const(codec.array(given, r, dtype), dtype, f"{raw.name or raw.type}/{name}")
            inputs.insert(index, made)
        while inputs and inputs[-1] is None:
            inputs.pop()
        return inputs

    def _bind(self, declared: RawValue, value: Value, raw: RawNode, index: int) -> None:
        """Give a result the file's name, names and location; compare the declared type."""
        if not declared.key:
            return
        if self.format == "onnx":
            value.name = declared.key
        else:
            single = raw.name if len(raw.outputs) == 1 else ""
            value.name = self.out.fresh_name(next(n for n in (*declared.names[:1], single, declared.key) if n))
        value.names, value.loc, value.extras = declared.names, declared.loc, dict(declared.extras)
        self.known[declared.key] = value
        support.compare_declared(self.sink, value, declared, f"output {index} of {support.title(raw)}")

    # ------------------------------------------------- what is not read by a form
    def _form(self, raw: RawNode) -> tuple[Form, type[Op]] | None:
        """The row that reads this node; None (reported) if irc has none."""
        self.meant = None
        if not raw.type or raw.extras.get("broken") or self.functions.is_refused(raw):  # the reader has reported it
            return None
        rows = forms_of(self.format, raw.domain, raw.type)
        opset = support.opset_name(self.format, raw)
        if not support.opset_exists(self.format, raw):
            if self.format == "openvino" or opset not in self.unknown_opsets:  # an ONNX model says it once
                newest = support.newest_opset(self.format)
                self.sink.report(codes.UNKNOWN_OPSET, raw.loc, op=raw.type, opset=opset, newest=newest)
            self.unknown_opsets.add(opset)
            return None
        found = form_at(self.format, raw.domain, raw.type, raw.version)
        if found is not None and (found[0].last is None or raw.version <= found[0].last):
            return found
        if support.is_custom(self.format, raw.domain):
            self.sink.report(codes.CUSTOM_DOMAIN, raw.loc, op=raw.type, domain=raw.domain)
            return None
        reason = support.why_unsupported(self.format, raw)
        if reason:
            self.sink.report(codes.UNSUPPORTED_OP, raw.loc, op=raw.type, opset=opset, reason=reason)
        elif rows:
            first = support.opset_label(self.format, rows[0][0].since)
            self.sink.report(codes.NOT_IN_OPSET, raw.loc, op=raw.type, opset=opset, first=first)
        else:
            known = {r[0].name for k, v in FORMS.items() if k[:2] == (self.format, raw.domain) for r in v}
            if raw.type not in self.near:
                self.near[raw.type] = self.sink.nearest(raw.type, sorted(known))
            near = self.near[raw.type]
            guess = f"; did you mean {near}?" if near else ""
            self.meant = form_at(self.format, raw.domain, near, raw.version) if near and not raw.bodies else None
            self.sink.report(codes.UNKNOWN_OP, raw.loc, op=raw.type, opset=opset, guess=guess)
        return None

    def _opaque(self, raw: RawNode, inputs: list[Value | None], meant: tuple[Type | None, ...] = ()) -> None:
        """Keep a node as it stands, its results as declared, else of the types that were probably meant."""
        captured = [self.known[k] for k in sorted(support.captured_keys(raw)) if k in self.known]
        guesses = [*meant, *[None] * len(raw.outputs)]
        types: tuple[Type, ...] = tuple(
            v.type or guess or TensorType(dynamic, None) for v, guess in zip(raw.outputs, guesses, strict=False)
        )
        op = Opaque(self.format, raw.type, raw.version, raw.domain, types, len(captured))
        values = [self.out.new_value(v.key, t) for v, t in zip(raw.outputs, types, strict=True)]
        node = self.out.add_node(op, [*inputs, *captured], values, raw.name, raw.loc)
        node.origin = Origin(self.format, raw, None, tuple(inputs), tuple(values), [node])
        if not values or (self.format == "openvino" and raw.type == "Assign"):
            self.out.sinks.append(node)
        for i, (declared, value) in enumerate(zip(raw.outputs, values, strict=True)):
            self._bind(declared, value, raw, i)

    def _call(self, raw: RawNode, function: RawFunction, inputs: list[Value | None]) -> None:
        """A call of a model-local function: its body is read in place, under the call's origin."""
        body = self.functions.instantiate(raw, function)
        hidden = {key: self.known.pop(key) for key in body.keys(function) if key in self.known}
        for formal, value in zip(function.inputs, inputs, strict=False):
            if value is not None:
                self.known[body.key(formal)] = value
        before, constants = len(self.out), self.out.extras["constant_nodes"]
        known = len(constants)
        for node in body.nodes:
            self.node(node)
        del constants[known:]  # they belong to the function, not to this graph
        results = [self.known.get(body.key(name)) for name in function.outputs]
        for key in body.keys(function):
            self.known.pop(key, None)
        self.known |= hidden
        own = set(self._made_since(before))
        values = [
            v if v is None or v.producer in own else Builder(self.out, raw.name, raw.loc).Identity(v) for v in results
        ]
        made = self._made_since(before)
        outputs = tuple(v for v in values if v is not None)
        origin = Origin(self.format, raw, None, tuple(inputs), outputs[: len(raw.outputs)], made)
        for node in made:
            node.origin = origin
        for i, (declared, value) in enumerate(zip(raw.outputs, values, strict=False)):
            if value is not None:
                self._bind(declared, value, raw, i)


def _fields(value: RawValue) -> dict[str, Any]:
    return {"names": value.names, "loc": value.loc, "extras": {**value.extras, "key": value.key}}


def _is_foreign(value: Value, origin: Origin) -> bool:
    """A result that a `read` merely passes through still gets a node of its own."""
    return value.producer is None or value.producer not in origin.nodes


def _split_pads(fields: dict[str, Any]) -> dict[str, Any]:
    """The two fields that a Pads codec yields."""
    if isinstance(fields.get("pads"), tuple) and len(fields["pads"]) == 2 and isinstance(fields["pads"][0], tuple):
        begin, end = fields.pop("pads")
        fields |= {"pads_begin": begin, "pads_end": end}
    return fields


def _operand_notes(inputs: list[Value | None]) -> tuple[str, ...]:
    """One line an operand: its type, and where it comes from."""
    notes: list[str] = []
    for i, value in enumerate(inputs):
        if value is not None:
            loc: Loc = value.producer.loc if value.producer else value.loc
            line = f":{loc.line}" if loc.line else ""
            source = (
                f"  from {loc.where}" + (f" ({loc.file}{line})" if line else "") if loc.where else f"  {value.name}"
            )
            notes.append(f"input {i}: {as_written(value.type)}{source}")
    return tuple(notes)


def ordered(nodes: list[RawNode]) -> list[RawNode]:
    """The nodes in dependency order, file order where it is free; cycles (reported) keep file order."""
    producer = {v.key: i for i, node in enumerate(nodes) for v in node.outputs if v.key}
    dag: nx.DiGraph[int] = nx.DiGraph()
    dag.add_nodes_from(range(len(nodes)))
    for i, node in enumerate(nodes):
        for key in [*node.inputs, *support.captured_keys(node)]:
            if key in producer and producer[key] != i:
                dag.add_edge(producer[key], i)
    if not nx.is_directed_acyclic_graph(dag):
        return nodes
    return [nodes[i] for i in nx.lexicographical_topological_sort(dag)]
