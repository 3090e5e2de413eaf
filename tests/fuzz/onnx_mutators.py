"""Structure-aware mutations of ONNX files: of any field of any message, and of what the fields mean to each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from random import Random
from typing import Any

import numpy as np
import onnx
from google.protobuf.descriptor import FieldDescriptor as Field
from google.protobuf.message import DecodeError, Message
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, helper

from tests.fuzz import values

Donor = Callable[[], bytes]
TYPES = sorted(TensorProto.DataType.values())


def mutate(data: bytes, rng: Random, donor: Donor) -> bytes:
    """The file with one to a few mutations; `donor` gives other files whose parts may be taken over."""
    model = ModelProto.FromString(data)
    for _ in range(1 + min(int(rng.expovariate(0.9)), 5)):
        change = rng.choices([c for c, _ in CHANGES], [w for _, w in CHANGES])[0]
        try:
            change(model, rng, donor)
        except (ValueError, TypeError, DecodeError, LookupError, onnx.checker.ValidationError):
            continue  # a text that is no UTF-8, a number beyond 32 bits, nothing to choose from: not this one
    made = model.SerializeToString()
    return values.broken_bytes(rng, made) if rng.random() < 0.03 else made


# ------------------------------------------------------------------------------ any field
def messages(message: Message, depth: int = 0) -> Iterator[Message]:
    """The message and all inside it."""
    yield message
    if depth < 12:
        for field, value in message.ListFields():
            if field.message_type is not None:
                for inner in value if field.is_repeated else (value,):
                    yield from messages(inner, depth + 1)


def of_kind(model: Message, kind: type[Any]) -> list[Any]:
    return [m for m in messages(model) if isinstance(m, kind)]


def drawn_scalar(field: Any, rng: Random, near: Any) -> Any:
    """A value for a field of that type."""
    if field.cpp_type in (Field.CPPTYPE_INT32, Field.CPPTYPE_ENUM):
        wide = values.integer(rng, int(near or 0))
        return rng.choice(TYPES) if rng.random() < 0.5 else (wide + 2**31) % 2**32 - 2**31
    if field.cpp_type in (Field.CPPTYPE_INT64, Field.CPPTYPE_UINT64):
        wide = values.integer(rng, int(near or 0))
        return wide if field.cpp_type == Field.CPPTYPE_INT64 else wide % 2**64
    if field.cpp_type in (Field.CPPTYPE_FLOAT, Field.CPPTYPE_DOUBLE):
        return values.real(rng, float(near or 0))
    if field.type == Field.TYPE_BYTES:
        return values.broken_bytes(rng, bytes(near or b""))
    return values.text(rng, str(near or ""))


def change_field(model: ModelProto, rng: Random, donor: Donor) -> None:
    """Set, clear, double, drop or reorder a field of a message drawn anywhere."""
    message = rng.choice(list(messages(model)))
    field = rng.choice(list(message.DESCRIPTOR.fields))
    if rng.random() < 0.7 and message.ListFields():
        field = rng.choice(message.ListFields())[0]
    current = getattr(message, field.name)
    if field.is_repeated:
        change_list(message, field, current, rng)
    elif field.message_type is not None:
        if message.HasField(field.name) and rng.random() < 0.7:
            message.ClearField(field.name)
        else:
            current.SetInParent()
    elif rng.random() < 0.15:
        message.ClearField(field.name)
    else:
        setattr(message, field.name, drawn_scalar(field, rng, current))


def change_list(message: Message, field: Any, items: Any, rng: Random) -> None:
    """Drop, double, swap, add or replace an element."""
    kind = rng.randrange(5)
    scalar = field.message_type is None
    at = rng.randrange(len(items)) if items else 0
    if not items or kind == 0:
        if scalar:
            items.append(drawn_scalar(field, rng, items[at] if items else None))
        else:
            items.add()
    elif kind == 1:
        del items[at]
    elif kind == 2:
        many = rng.choice((1, 1, 3, 30))
        items.extend([items[at]] * many)
    elif kind == 3 and len(items) > 1:
        everything = list(items)
        rng.shuffle(everything)
        message.ClearField(field.name)
        getattr(message, field.name).extend(everything)
    elif scalar:
        items[at] = drawn_scalar(field, rng, items[at])


def transplant(model: ModelProto, rng: Random, donor: Donor) -> None:
    """Replace a message by one of its kind, from this file or another."""
    target = rng.choice(list(messages(model)))
    source = model if rng.random() < 0.4 else ModelProto.FromString(donor())
    copy = type(target)()
    copy.CopyFrom(rng.choice(of_kind(source, type(target))))
    target.CopyFrom(copy)


# -------------------------------------------------------------------------- what it means
def names(model: ModelProto) -> list[str]:
    """The names of values in the file."""
    found = {n for node in of_kind(model, NodeProto) for n in (*node.input, *node.output)}
    return sorted(found | {t.name for t in of_kind(model, TensorProto)})


@cache
def operator_names() -> tuple[tuple[str, str], ...]:
    return tuple(sorted({(s.domain, s.name) for s in onnx.defs.get_all_schemas()}))


def change_operator(model: ModelProto, rng: Random, donor: Donor) -> None:
    """Another operation at a node, or this one of another domain."""
    node = rng.choice(of_kind(model, NodeProto))
    if rng.random() < 0.2:
        node.domain = rng.choice(("ai.onnx", "ai.onnx.ml", "com.microsoft", "acme", "ai.onnx.preview.training"))
    else:
        node.domain, node.op_type = rng.choice(operator_names())
    if rng.random() < 0.5 and node.domain not in [o.domain for o in model.opset_import]:
        model.opset_import.add(domain=node.domain, version=rng.choice((1, 3, 5, 21)))


def change_operand(model: ModelProto, rng: Random, donor: Donor) -> None:
    """Another value, none, or one more at a node's operands or results."""
    node = rng.choice(of_kind(model, NodeProto))
    side = node.input if rng.random() < 0.8 else node.output
    name = rng.choice([*names(model), "", "nowhere"])
    if not side or rng.random() < 0.25:
        side.append(name)
    elif rng.random() < 0.25:
        del side[rng.randrange(len(side))]
    else:
        side[rng.randrange(len(side))] = name


def change_attribute(model: ModelProto, rng: Random, donor: Donor) -> None:
    """Another value, type or name of an attribute, or a new one."""
    node = rng.choice(of_kind(model, NodeProto))
    if not node.attribute or rng.random() < 0.3:
        known = [d.attribute for o in [ModelProto.FromString(donor())] for d in of_kind(o, NodeProto) if d.attribute]
        schemas = [s for s in onnx.defs.get_all_schemas() if s.name == node.op_type]
        pool = [*(a for s in schemas for a in s.attributes), *(a.name for a in (known[0] if known else ()))]
        made = node.attribute.add(name=rng.choice(pool or ["axis"]))
    else:
        made = rng.choice(node.attribute)
    if made.type == AttributeProto.INTS and rng.random() < 0.6 and made.ints:
        change_list(made, AttributeProto.DESCRIPTOR.fields_by_name["ints"], made.ints, rng)
        return
    given = rng.choice(
        (
            values.integer(rng, made.i),
            values.real(rng),
            values.text(rng),
            [values.integer(rng) for _ in range(rng.randrange(1, 6))],
            [values.real(rng)] * rng.randrange(1, 4),
            [values.text(rng)],
        )
    )
    if made.type == AttributeProto.INT and rng.random() < 0.7:
        given = values.integer(rng, made.i)
    made.CopyFrom(helper.make_attribute(made.name, given))


def change_shape(model: ModelProto, rng: Random, donor: Donor) -> None:
    """Another size, symbol or rank of a declared type."""
    shapes = of_kind(model, onnx.TensorShapeProto)
    if not shapes or rng.random() < 0.1:
        rng.choice(of_kind(model, onnx.TypeProto)).tensor_type.ClearField("shape")
        return
    shape = rng.choice(shapes)
    if not shape.dim or rng.random() < 0.25:
        shape.dim.insert(rng.randrange(len(shape.dim) + 1), onnx.TensorShapeProto.Dimension(dim_value=rng.randrange(4)))
    elif rng.random() < 0.25:
        del shape.dim[rng.randrange(len(shape.dim))]
    elif rng.random() < 0.5:
        rng.choice(shape.dim).dim_value = values.integer(rng, 2)
    else:
        rng.choice(shape.dim).dim_param = rng.choice(("N", "M", "batch", values.text(rng)))


def fill(tensor: TensorProto, dims: list[int], rng: Random, contents: Any = None) -> None:
    """Give a tensor these sizes and as many elements, of its type."""
    kind = helper.tensor_dtype_to_np_dtype(tensor.data_type)
    count = int(np.prod(dims))
    if kind.kind == "O":
        made = helper.make_tensor(tensor.name, tensor.data_type, dims, [values.text(rng)] * count)
    else:
        numbers = contents if contents is not None else [rng.choice((0, 1, 2, 3)) for _ in range(count)]
        with np.errstate(all="ignore"):
            made = onnx.numpy_helper.from_array(np.array(numbers).astype(kind).reshape(dims), tensor.name)
    tensor.CopyFrom(made)


def change_constant(model: ModelProto, rng: Random, donor: Donor) -> None:
    """Another shape, extreme elements or another type of a constant, its data consistent with it."""
    tensor = rng.choice(of_kind(model, TensorProto))
    dims, kind = list(tensor.dims), rng.random()
    if kind < 0.35:
        drawn = rng.choice(([], [0], [1], [len(dims)], [1, 1], [2, 0], [1, *dims], dims[1:], [d + 1 for d in dims]))
        fill(tensor, drawn, rng)
    elif kind < 0.8 and tensor.data_type in (TensorProto.INT64, TensorProto.INT32):
        array = onnx.numpy_helper.to_array(tensor).reshape(-1).astype(np.int64)
        if len(array):
            array[rng.randrange(len(array))] = values.integer(rng, int(array[0]))
        fill(tensor, dims, rng, array)
    else:
        tensor.data_type = rng.choice(TYPES[1:])
        fill(tensor, dims, rng)


def change_role(model: ModelProto, rng: Random, donor: Donor) -> None:
    """Make a constant an input, an input a constant, or any value an output."""
    graph: GraphProto = model.graph
    kind = rng.randrange(3)
    if kind == 0 and graph.initializer:
        at = rng.randrange(len(graph.initializer))
        tensor = graph.initializer[at]
        sizes = [rng.choice((d, d, f"n{d}")) for d in tensor.dims]
        graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, sizes))
        if rng.random() < 0.8:
            del graph.initializer[at]
    elif kind == 1 and graph.input:
        at = rng.randrange(len(graph.input))
        info = graph.input[at]
        made = graph.initializer.add(name=info.name, data_type=info.type.tensor_type.elem_type)
        fill(made, [min(d.dim_value, 8) for d in info.type.tensor_type.shape.dim], rng)
        del graph.input[at]
    else:
        graph.output.add(name=rng.choice(names(model)))


def change_version(model: ModelProto, rng: Random, donor: Donor) -> None:
    """Another opset or version of the file format."""
    if rng.random() < 0.2:
        model.ir_version = rng.choice((0, 1, 3, 4, 7, 8, 10, 11, 12, 99))
    else:
        rng.choice(model.opset_import).version = rng.choice((*range(1, 27), 0, -1, 2**40))


def change_element_type(model: ModelProto, rng: Random, donor: Donor) -> None:
    """Another element type of inputs: of one, or of all."""
    found = [t.tensor_type for t in of_kind(model, onnx.TypeProto) if t.HasField("tensor_type")]
    kind = rng.choice(TYPES)
    for one in found if rng.random() < 0.5 else [rng.choice(found)]:
        one.elem_type = kind


def graft(model: ModelProto, rng: Random, donor: Donor) -> None:
    """Append the nodes of another file, fed by values of this one where drawn."""
    other = ModelProto.FromString(donor()).graph
    known, rename = names(model), dict[str, str]()
    for info in other.input:
        rename[info.name] = rng.choice(known) if rng.random() < 0.7 else "g_" + info.name
    for node in other.node:
        made = model.graph.node.add()
        made.CopyFrom(node)
        for side in (made.input, made.output):
            for i, name in enumerate(side):
                side[i] = rename.get(name, name and "g_" + name)
    for tensor in other.initializer:
        model.graph.initializer.add().CopyFrom(tensor)
        model.graph.initializer[-1].name = "g_" + tensor.name
    for info in (*other.input, *other.output):
        side = model.graph.input if info in other.input else model.graph.output
        if rename.get(info.name, "g_" + info.name) == "g_" + info.name:
            side.add().CopyFrom(info)
            side[-1].name = "g_" + info.name


def change_storage(model: ModelProto, rng: Random, donor: Donor) -> None:
    """Say that a constant's data stand in another file, or make it sparse."""
    tensor = rng.choice(of_kind(model, TensorProto))
    if rng.random() < 0.6:
        tensor.data_location = TensorProto.EXTERNAL
        places = ("m.onnx", "w.bin", "../w.bin", "/etc/hostname", "/dev/zero", "link", ".", "", "w.bin\0")
        tensor.external_data.add(key="location", value=rng.choice(places))
        for key in rng.sample(("offset", "length", "checksum"), rng.randrange(3)):
            tensor.external_data.add(key=key, value=str(values.integer(rng)))
    else:
        sparse = model.graph.sparse_initializer.add(dims=[values.integer(rng) % 50 for _ in range(2)])
        sparse.values.CopyFrom(tensor)
        sparse.indices.CopyFrom(rng.choice(of_kind(model, TensorProto)))


CHANGES: tuple[tuple[Callable[[ModelProto, Random, Donor], None], int], ...] = (
    (change_field, 6),
    (transplant, 3),
    (change_operator, 3),
    (change_operand, 4),
    (change_attribute, 6),
    (change_shape, 5),
    (change_constant, 6),
    (change_role, 3),
    (change_version, 2),
    (change_element_type, 2),
    (graft, 3),
    (change_storage, 1),
)
"""What a mutation may be, and how often."""
