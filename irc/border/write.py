"""Model → RawModel: every canonical operation in a form of the target format and version.

A node that came from this format untouched is written as it was read.  Otherwise the newest row that
can say it is taken; failing that, the rows' `write`s and `decompose`, in this order, say it in simpler
operations; failing that, a 4xxx finding names the version that could.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any, cast

import numpy as np

from irc.border import scans, support, widen
from irc.border.metadata import of_runtime_info, producer, to_runtime_info
from irc.border.read import ordered
from irc.border.reasons import facts_of, not_copied, why_not
from irc.border.regions import join_layer, number_ends
from irc.border.target import WriteOptions
from irc.diagnostics import NOWHERE, Loc, Problem, Sink
from irc.diagnostics.codes import conversion as codes
from irc.formats.document import RawGraph, RawModel, RawNode, RawTensor, RawValue
from irc.ir.dim import SizeUnknown
from irc.ir.graph import Constant, Graph, Model, Node, Origin, Value
from irc.ir.names import unused
from irc.ir.types import DType, Extras, TensorType, UnknownRank
from irc.opdef.base import Op
from irc.opdef.builder import Builder, trace
from irc.opdef.codecs import REQUIRED, AsInput, FromOperands, Ignored, Pads
from irc.opdef.forms import Declined, Form
from irc.opdef.known import fold_constants
from irc.opdef.opaque import Opaque
from irc.opdef.registry import form_at
from irc.opdef.sizes import SizeBuilder
from irc.opdef.window import NEUTRAL
from irc.ops.cast import Cast
from irc.ops.layout import Identity, Transpose

Path = tuple[tuple[Op, tuple[str, ...]], ...]
AGAIN = 3
"""How often rewriting an operation may lead to one of the same name, inside of each other."""


def write_model(model: Model, options: WriteOptions, sink: Sink) -> RawModel:
    """The model as `options` ask; what cannot be said is a finding (and the result unusable)."""
    same = model.format == options.format
    writer = _Writer(options, sink, same)
    graph = writer.graph(model.graph)
    metadata, extras = dict(model.metadata), dict(model.extras)
    if not same:
        metadata = {**of_runtime_info(extras), **metadata} if model.format == "openvino" else metadata
        extras = to_runtime_info(metadata) if options.format == "openvino" else producer()
    return RawModel(
        options.format,
        options.version,
        graph,
        dict(options.opsets) if options.format == "onnx" else {},
        list(model.functions) if same else [],
        metadata,
        extras,
        model.file,
    )


class _Writer:
    def __init__(self, options: WriteOptions, sink: Sink, same: bool) -> None:
        self.options, self.sink, self.same, self.format = options, sink, same, options.format
        self.out = RawGraph()
        self.keys: dict[Value, str] = {}
        self.constants: dict[int, str] = {}
        self.used: set[str] = set()
        self.names: set[str] = set()
        self.results: set[Value] = set()  # values that are used without being an operand: outputs of a graph
        self.scope = Graph()  # names of what is made here
        self.spare: list[str] = []  # values that nothing may need, though they were written

    def graph(self, graph: Graph, given: int | None = None) -> RawGraph:
        """Write a graph; of a region, the first `given` inputs, while the others are values around it."""
        out = self.out
        out.name = graph.name or ("main" if self.format == "onnx" and not self.same else "")  # ONNX demands one
        self.results.update(graph.outputs)
        skip = ("values", "outputs", "constant_nodes", "order", "constants", "captured")
        out.extras = {k: v for k, v in graph.extras.items() if k not in skip} if self.same else {}
        out.values = dict(graph.extras.get("values", {})) if self.same else {}
        values = graph.values()
        self.scope.reserve([v.name for v in values])
        for value in graph.inputs[:given]:
            out.inputs.append(self._declared(value))
        if self.format == "onnx" and not self.same:
            self._set_aside([v for v in graph.outputs if v.const is not None])
        if self.same:  # constants that nobody uses are part of the file too
            for value in (*values, *graph.extras.get("captured", [])):
                if value.const is not None and "key" in value.extras:
                    self._key(value)
        left = {id(o): len(o.nodes) for n in graph.nodes if (o := n.origin) and self._verbatim(o)}
        pending = self._constant_nodes(graph)
        order = {id(raw): i for i, raw in enumerate(graph.extras.get("order", []))}
        for node in graph.nodes:
            place = order.get(id(node.origin.raw), -1) if node.origin else -1
            while pending and order.get(id(pending[0].raw), -1) < place:
                self._emit_origin(pending.pop(0))
            if id(node.origin) in left:
                left[id(node.origin)] -= 1
                if left[id(node.origin)] == 0:
                    assert node.origin is not None
                    self._emit_origin(node.origin)
            else:
                self._node(node)
        for origin in pending:
            self._emit_origin(origin)
        self._outputs(graph)
        out.nodes = ordered(out.nodes)
        scans.drop_unused(out, self.spare)
        if self.same:
            place = {key: i for i, key in enumerate(graph.extras.get("constants", []))}
            out.constants = dict(sorted(out.constants.items(), key=lambda item: place.get(item[0], len(place))))
        return out

    # ------------------------------------------------------------------ values
    def _declared(self, value: Value) -> RawValue:
        extras = dict(value.extras) if self.same else {}
        if "layout" in value.extras:
            extras["layout"] = value.extras["layout"]
        names = value.names or ((value.name,) if not self.same else ())
        return RawValue(self._key(value), names, value.type, value.loc, extras)

    def _key(self, value: Value) -> str:
        """The key of a value; a constant is written when it is first used."""
        if value.const is not None:
            found = self.constants.get(id(value.const))
            if found is None:
                found = self.constants[id(value.const)] = self._new_key(value)
                self.out.constants[found] = _raw_tensor(value, found, self.same)
            self.keys[value] = found
        if value not in self.keys:
            self.keys[value] = self._new_key(value)
        return self.keys[value]

    def _new_key(self, value: Value) -> str:
        wanted = str(value.extras["key"]) if self.same and "key" in value.extras else value.name
        return unused(wanted, self.used, first=1)

    def _outputs(self, graph: Graph) -> None:
        declared: list[RawValue] = graph.extras.get("outputs", []) if self.same else []
        seen: set[Value] = set(graph.inputs)
        for i, value in enumerate(graph.outputs):
            raw = declared[i] if i < len(declared) and len(declared) == len(graph.outputs) else None
            if raw is not None:
                type = value.type if isinstance(value.type, TensorType) else raw.type  # a sequence is as declared
                self.out.outputs.append(replace(raw, key=self._key(value), type=type))
                continue
            if self.format == "onnx" and (value in seen or value.const is not None):
                twin = self.scope.new_value(f"{value.name}_out", value.type)
                if value not in seen and not self.same:
                    self.keys[twin] = unused(value.name, self.used, first=1)
                seen.add(value)
                self._say(Identity(), [value], [twin], "", value.loc)
                value = twin
            seen.add(value)
            names = value.names or (value.name,)
            self.out.outputs.append(RawValue(self._key(value), names, value.type, value.loc, {}))

    def _set_aside(self, outputs: Sequence[Value]) -> None:
        """Call constants that are outputs something else: the output has the name."""
        for value in outputs:
            if value.const is not None and id(value.const) not in self.constants:
                key = self.constants[id(value.const)] = unused(f"{value.name}_value", self.used, first=1)
                self.out.constants[key] = _raw_tensor(value, key, self.same)

    def _constant_nodes(self, graph: Graph) -> list[Origin]:
        """The file's Constant nodes, in its order, where they can be written as nodes again."""
        found: list[Origin] = []
        given: list[tuple[Origin, Constant]] = graph.extras.get("constant_nodes", []) if self.same else []
        for origin, const in given:
            if self._verbatim(origin) and id(const) not in self.constants:
                self.constants[id(const)] = self._new_key(origin.outputs[0])
                found.append(origin)
        return found

    # ------------------------------------------------------------------- nodes
    def _verbatim(self, origin: Origin | None) -> bool:
        """Whether the node of the file can be written again as it was."""
        if origin is None or not origin.intact or origin.format != self.format or origin.is_read_inside:
            return False
        if self.options.misreads(origin):
            return False
        if origin.form is None or any(support.bodies_of(origin.raw)):
            same = support.means_the_same(self.format, origin.raw, self.options.opsets, self.options.max_opset)
            if origin.form is None or not same:
                return same
        opset = self.options.opset(origin.form.domain)
        if self.format == "openvino":
            return bool(origin.form.since <= opset)
        found = form_at(self.format, origin.form.domain, origin.form.name, opset)
        last = origin.form.last
        return found is not None and found[0] is origin.form and (last is None or opset <= last)

    def _emit_origin(self, origin: Origin) -> None:
        raw: RawNode = origin.raw
        inputs = ["" if v is None else self._key(v) for v in origin.inputs]
        outputs = [
            replace(v, key=self._key(value) if v.key else "", type=value.type)
            for v, value in zip(raw.outputs, origin.outputs, strict=False)
        ]
        version = self.options.opsets.get(raw.domain, raw.version)
        if self.format == "openvino":
            version = min(raw.version, self.options.max_opset)
        self.out.nodes.append(replace(raw, inputs=inputs, outputs=outputs, version=version))

    def _node(self, node: Node) -> None:
        if isinstance(node.op, Opaque):
            p = not_copied(self.format, node.op, node.origin, self.options.opset(node.op.domain))
            self.sink.report(p.code, node.loc, p.notes, **p.facts)
            return
        extras: Extras = {}
        if self.same and node.origin and len(node.origin.nodes) == 1:
            extras = {k: v for k, v in node.origin.raw.extras.items() if k in ("rt_info", "doc_string", "metadata")}
        self._say(node.op, list(node.inputs), list(node.outputs), node.name, node.loc, extras)

    def _say(
        self,
        op: Op,
        inputs: list[Value | None],
        outputs: Sequence[Value],
        name: str,
        loc: Loc,
        extras: Extras | None = None,
    ) -> None:
        """Emit an operation, or report why it cannot be said, with the lowest operation set that can."""
        try:
            self._legalise(op, inputs, outputs, name, loc, extras)
        except UnknownRank:
            self.sink.report(codes.NEEDS_RANK, loc, **facts_of(self.format, op, inputs))
        except Problem as p:
            what, needed = facts_of(self.format, op, inputs), self._first_that_says(op, inputs, outputs)
            if needed is not None:
                labels = [support.opset_label(self.format, n) for n in (needed, self._asked())]
                own = p.code in (codes.NEEDS_NEWER_OPSET, codes.CANNOT_EXPRESS) and p.facts.get("op") == what["op"]
                notes = p.notes if own else (*p.notes, str(p))
                self.sink.report(codes.NEEDS_NEWER_OPSET, loc, notes, needed=labels[0], asked=labels[1], **what)
            elif p.code == codes.CANNOT_EXPRESS and p.facts.get("op") != what["op"]:  # but an operation that it takes
                through = f"it would take {p.facts['op']} of {p.facts['types']}, and {p.facts['reason']}"
                self.sink.report(codes.CANNOT_EXPRESS, loc, p.notes, reason=through, **what)
            elif p.code.id.startswith("IRC4"):
                self.sink.report(p.code, loc, p.notes, **p.facts)
            else:
                facts = {**what, "reason": str(p), "cause": p.code.id}
                self.sink.report(codes.NOT_AS_WRITTEN, loc, p.notes, **facts)

    def _asked(self) -> int:
        """The newest operation set that may be used."""
        return self.options.opset("")

    def _first_that_says(self, op: Op, inputs: list[Value | None], outputs: Sequence[Value]) -> int | None:
        """The lowest operation set above the one asked for that can say the operation, if any."""
        newest = support.NEWEST_OPENVINO_OPSET if self.format == "openvino" else support.newest_onnx_opset()
        asked = self.options
        for opset in range(self._asked() + 1, newest + 1):
            before = self._mark()
            self.options = replace(asked, opsets={**asked.opsets, "": opset}, max_opset=opset)
            try:
                self._legalise(op, inputs, outputs, op.name, NOWHERE)
            except (Problem, UnknownRank):
                continue
            else:
                return opset
            finally:
                self._undo(before)
                self.options = asked
        return None

    def _legalise(
        self,
        op: Op,
        inputs: list[Value | None],
        outputs: Sequence[Value],
        name: str,
        loc: Loc,
        extras: Extras | None = None,
        path: Path = (),
    ) -> None:
        """Emit `op` in the newest row that can say it, else rewritten by a row's `write` or by `decompose`.

        `path`: the operations whose rewrites led here.  Where nothing says it, the first refusal is raised.
        """
        rows = self._rows(op)
        if op.regions:
            (self._emit_regions if self.format == "onnx" else self._emit_joined)(op, inputs, outputs, name, loc)
            return
        otherwise = self.options.other_words(op, inputs)
        for form in () if otherwise else rows:
            if form.direct and self._can_say(form, op, inputs, outputs):
                self._emit(form, op, inputs, outputs, name, loc, extras or {})
                return
        rewrites: list[Callable[..., Any]] = [otherwise] if otherwise else []
        if self.format == "onnx":
            rewrites += widen.rewrites(rows, op, inputs, lambda row, wide: self._can_say(row, op, wide, outputs))
        rewrites += [f.write for f in rows if f.write is not None]
        if op.decompose is not None:
            rewrites.append(_decomposed)
        if op.resolve is not None:
            rewrites.append(_resolved)
        rewrites += self._words_of_the_other(op)
        key = op, tuple(str(v.type) if v is not None else "" for v in inputs)
        if key in path:
            rewrites = rewrites[:1]  # a rewrite that leads back here: its other ways are being tried already
        if sum(before.name == op.name for before, _ in path) >= AGAIN:
            rewrites = []  # it leads back here with ever larger sizes: two ways at each turn would be a million
        refusal: Problem | None = None
        for i, rewrite in enumerate(rewrites if len(path) <= 20 else []):
            before = self._mark()
            try:
                self._rewrite(rewrite, op, inputs, outputs, name, loc, (*path, key))
                return
            except (Declined, Problem, SizeUnknown) as e:
                self._undo(before)
                if i == 0 and isinstance(e, Problem):
                    refusal = e
        raise refusal or self._refusal(op, inputs, outputs)

    def _words_of_the_other(self, op: Op) -> list[Callable[..., Any]]:
        """What says the operation in others for the other format, where that has none of it: equal in every format."""
        rows: Sequence[Form] = op.onnx if self.format == "openvino" else op.openvino
        return [row.write for row in rows if row.write is not None and not row.name]

    def _rewrite(
        self,
        rewrite: Callable[..., Any],
        op: Op,
        inputs: list[Value | None],
        outputs: Sequence[Value],
        name: str,
        loc: Loc,
        path: Path,
    ) -> None:
        """Emit `op` in the operations that `rewrite` says it in."""
        graph, results, formals = trace(op, inputs, rewrite, SizeBuilder)
        given = [v for v in inputs if v is not None and v.const is None]
        for formal, value in zip(formals, given, strict=True):
            self.keys[formal] = self._key(value)
        self._inline(graph, results, outputs, name or op.name, loc, path)

    def _mark(self) -> tuple[int, int, int]:
        return len(self.out.nodes), len(self.out.constants), len(self.constants)

    def _undo(self, mark: tuple[int, int, int]) -> None:
        """Take back what was written since the mark."""
        nodes, written, known = mark
        self.names.difference_update(n.name for n in self.out.nodes[nodes:])
        del self.out.nodes[nodes:]
        while len(self.out.constants) > written:
            self.used.discard(self.out.constants.popitem()[0])
        while len(self.constants) > known:
            self.constants.popitem()

    def _inline(
        self, graph: Graph, results: Sequence[Value], outputs: Sequence[Value], name: str, loc: Loc, path: Path
    ) -> None:
        """Emit a traced graph's nodes with its results named as `outputs`; of those that nobody uses, at most one."""
        named = list(zip(results, outputs, strict=False))
        named = [(result, wanted) for result, wanted in named if self._is_used(wanted)] or named[:1]
        graph.outputs = [result for result, _ in named]
        fold_constants(graph)
        renamed: dict[Value, Value] = {}
        for result, wanted in named:
            if result.producer is None or result in renamed:
                found = Builder(graph, name).Identity(result)
                renamed[found] = wanted
            else:
                renamed[result] = wanted
        for node in graph.nodes:
            for value in node.outputs:
                if value in renamed:
                    if self._is_used(renamed[value]):
                        self.results.add(value)
                    self.keys[value] = self._key(renamed[value])
                    value.names, value.extras = renamed[value].names, renamed[value].extras
                else:
                    value.name = self.scope.fresh_name(f"{name}/{value.name}")
            label = f"{name}/{node.op.name}" if len(graph) > 1 else name
            self._legalise(node.op, list(node.inputs), node.outputs, label, loc, None, path)

    def _rows(self, op: Op) -> list[Form]:
        """The rows of the operation that apply in the target version, newest first."""
        found: list[Form] = []
        for form in getattr(op, self.format):
            if support.is_custom(self.format, form.domain) and form.domain not in self.options.opsets:
                continue  # not every runtime has it: only a model that names the domain uses it
            opset = self.options.opset(form.domain)
            if form.since > opset or (form.last is not None and opset > form.last):
                continue
            at = form_at(self.format, form.domain, form.name, opset)
            if self.format == "openvino" or not form.name or (at is not None and at[0].since == form.since):
                found.append(form)
        return sorted(found, key=lambda f: -f.since)

    # ------------------------------------------------------------ saying one row
    def _can_say(self, form: Form, op: Op, inputs: Sequence[Value | None], outputs: Sequence[Value]) -> bool:
        """Whether this row expresses the operation with these operands exactly."""
        said = {c.field(n) for n, c in form.attrs.items()} | set(form.judges)
        if any(isinstance(c, Pads) for c in form.attrs.values()):
            said |= {"pads_begin", "pads_end"}
        for f in fields(op):
            if f.name not in said and not _is_default(f.name, getattr(op, f.name), f.default):
                return False
        if form.when is not None and not form.when(op, *inputs):
            return False
        most = support.results_of(form, op)
        if most is not None and any(self._is_used(v) for v in outputs[most:]):
            return False
        return self._operands_fit(form, op, inputs) and self._attributes(form, op, inputs) is not None

    def _is_used(self, value: Value) -> bool:
        return bool(value.uses) or value in self.results

    def _operands_fit(self, form: Form, op: Op, inputs: Sequence[Value | None]) -> bool:
        sig = form.sig or op.sig
        as_inputs = form.as_inputs()
        for index in as_inputs:
            value = inputs[index] if index < len(inputs) else None
            if value is not None and value.array is None:
                return False
        kept = [v for i, v in enumerate(inputs) if i not in as_inputs] if form.sig else list(inputs)
        kept = form.filed(kept)
        if len(kept) < sig.min_inputs or (sig.max_inputs is not None and len(kept) > sig.max_inputs):
            return False
        for i, value in enumerate(kept):
            if value is None:
                if not sig.param(i).optional or (self.format == "openvino" and any(kept[i:])):
                    return False
                continue
            allowed = sig.allowed(sig.param(i), form.types or None)
            if allowed and value.dtype not in allowed and widen.bridge(value.dtype, allowed) is None:
                return False
        return True

    def _attributes(self, form: Form, op: Op, inputs: Sequence[Value | None]) -> dict[str, Any] | None:
        """The row's attributes; None if a value has no spelling."""
        found: dict[str, Any] = {}
        for name, codec in form.attrs.items():
            if isinstance(codec, Ignored):
                continue
            if isinstance(codec, AsInput):
                value = inputs[codec.index] if codec.index < len(inputs) else None
                if value is None and codec.default is REQUIRED:
                    return None
                if value is not None and value.array is not None:
                    found[name] = self._from_front(form, name, codec.encode(value.array, self.format), inputs)
                continue
            value = codec.value(name, op, inputs)
            if value is None and isinstance(codec, FromOperands):
                return None
            default = value == codec.default
            if value is None or (default and (self.format == "onnx" or codec.silent)):
                continue
            try:
                found[name] = self._from_front(form, name, codec.encode(value, self.format), inputs)
            except (ValueError, TypeError):
                return None
        return found

    def _from_front(self, form: Form, name: str, value: Any, inputs: Sequence[Value | None]) -> Any:
        """Before opset 11, most operations of ONNX count axes from the front only."""
        counted = self.format == "onnx" and form.domain == "" and name in ("axis", "axes")
        rank = inputs[0].rank if inputs and inputs[0] is not None else None
        if not counted or rank is None or self.options.opset("") > 10:
            return value
        if not isinstance(value, list):
            return value + rank if value < 0 else value
        axes = cast("list[int]", value)
        rank += len(axes) if form.name == "Unsqueeze" else 0
        return [a + rank if a < 0 else a for a in axes]

    def _emit(
        self,
        form: Form,
        op: Op,
        inputs: list[Value | None],
        outputs: Sequence[Value],
        name: str,
        loc: Loc,
        extras: Extras,
    ) -> None:
        sig = form.sig or op.sig
        as_inputs = form.as_inputs()
        keys: list[str] = []
        kept = form.filed([v for i, v in enumerate(inputs) if i not in as_inputs])
        for i, value in enumerate(kept):
            if value is None:
                keys.append("")
                continue
            index = i if form.sig else inputs.index(value)
            allowed = sig.allowed(sig.param(index), form.types or None)
            keys.append(self._key(self._bridged(value, allowed, name or op.name, loc)))
        while keys and not keys[-1]:
            keys.pop()
        attrs = self._attributes(form, op, inputs) or {}
        raws = [RawValue(self._key(v), v.names, v.type, v.loc, dict(v.extras) if self.same else {}) for v in outputs]
        raws = raws[: support.results_of(form, op)]  # what this version does not give, nobody uses
        if self.format == "onnx":
            raws = [replace(r, names=(r.key,)) for r in raws]
            empty = {n: support.list_type(form.attrs[n]) for n, v in attrs.items() if v == []}
            extras = {**extras, "attr_types": empty} if empty else extras
        version = form.since if self.format == "openvino" else self.options.opset(form.domain)
        label = unused(name or op.name, self.names, first=1)
        self.out.nodes.append(RawNode(form.name, version, form.domain, label, keys, raws, attrs, loc, extras=extras))

    def _emit_regions(self, op: Op, inputs: list[Value | None], outputs: Sequence[Value], name: str, loc: Loc) -> None:
        """Emit an If or a Loop with its bodies, which use values of this graph by name."""
        made = scans.spelled(op, inputs, self._asked() >= scans.FIRST_SCAN and not self.same)
        for place, axis in made.turned.items():
            made.inputs[place] = self._with_axis_first(made.inputs[place], axis, name, loc)
        captured = [self._key(v) for v in made.inputs[made.own :] if v is not None]
        attrs = dict(made.attrs)
        for attribute, region in made.bodies.items():
            inner = _Writer(self.options, self.sink, self.same)
            inner.used = self.used
            inner.keys.update(zip(region.inputs[made.given :], captured, strict=True))
            attrs[attribute] = replace(inner.graph(region, made.given), name=region.name or attribute)
        keys = ["" if v is None else self._key(v) for v in made.inputs[: made.own]]
        raws = [RawValue(key, (key,), v.type, v.loc) for v in outputs for key in [self._key(v)]]
        self.spare += [self.keys[v] for v in made.spare if v in self.keys]
        label = unused(name or op.name, self.names, first=1)
        self.out.nodes.append(RawNode(made.type, self.options.opset(""), "", label, keys, raws, attrs, loc))

    def _with_axis_first(self, value: Value | None, axis: int, name: str, loc: Loc) -> Value:
        assert value is not None and value.rank is not None
        perm = self.scope.add_constant(np.array([axis, *(k for k in range(value.rank) if k != axis)]), "perm")
        found = Builder(self.scope, value.name).Transpose(self.scope.new_value(value.name, value.type), perm)
        self._legalise(Transpose(), [value, perm], [found], f"{name}/Transpose", loc)
        return found

    def _emit_joined(self, op: Op, inputs: list[Value | None], outputs: Sequence[Value], name: str, loc: Loc) -> None:
        """Emit an If or a Loop with bodies that port maps join to it.  Raises Problem IRC4xxx."""
        made = join_layer(op, inputs, self.scope)
        if made is None or made.since > self.options.max_opset:
            raise self._refusal(op, inputs, outputs)
        bodies: dict[str, RawGraph] = {}
        for part, region in made.bodies.items():
            body = bodies[part] = _Writer(self.options, self.sink, False).graph(region)
            number_ends(body)
        keys = [self._key(v) for v in made.inputs]
        raws = [RawValue(self._key(v), v.names, v.type, v.loc, dict(v.extras) if self.same else {}) for v in outputs]
        for port, value in enumerate(raws, len(keys)):
            value.extras["port"] = port
        label = unused(name or op.name, self.names, first=1)
        node = RawNode(made.type, made.since, "", label, keys, raws, {}, loc, bodies=bodies, extras={**made.sections})
        self.out.nodes.append(node)

    def _bridged(self, value: Value, allowed: frozenset[DType] | None, name: str, loc: Loc) -> Value:
        """The operand, cast where this row wants another integer type for an index or a shape."""
        if not allowed or value.dtype in allowed:
            return value
        target = widen.bridge(value.dtype, allowed)
        assert target is not None
        if value.array is not None:
            const = Constant.of(value.array.astype(target.numpy), target)
            return self.scope.add_constant(const, f"{value.name}_{target}")
        cast = Builder(self.scope, value.name).Cast(self.scope.new_value(value.name, value.type), to=target)
        self._legalise(Cast(to=target), [value], [cast], f"{name}/Cast", loc)
        return cast

    def _refusal(self, op: Op, inputs: Sequence[Value | None], outputs: Sequence[Value]) -> Problem:
        """The 4xxx where nothing says this operation."""
        facts = facts_of(self.format, op, inputs)
        return Problem(codes.CANNOT_EXPRESS, reason=why_not(self.format, op, inputs, outputs), **facts)


def _is_default(field: str, value: object, default: object) -> bool:
    """Whether an attribute has its default, left out or spelled out."""
    return value == default or (default == () and field in NEUTRAL and set(cast("Any", value)) == {NEUTRAL[field]})


def _raw_tensor(value: Value, key: str, same: bool) -> RawTensor:
    const = value.const
    assert const is not None
    extras = dict(value.extras) if same else {}
    load = const.load if same else lambda: np.asarray(const.read())  # a sparse tensor stays one in its own format
    return RawTensor(value.name, const.dtype, const.shape, load, value.loc, extras)


def _resolved(b: Builder, op: Any, *operands: Value | None) -> Any:
    """The operation as if its operands were known only when the model runs."""
    found = op.resolve(b, *operands)
    if found is None:
        raise Declined
    return found


def _decomposed(b: Builder, op: Any, *operands: Value | None) -> Any:
    return op.decompose(b, *operands)
