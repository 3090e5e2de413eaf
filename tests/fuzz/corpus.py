"""Hostile files that once hurt, by what they do, each with the errors that `validate` finds in them today.

What campaigns find joins them: as a function here, or as files in corpus/<name>/ with their codes in `errors.txt`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import FunctionProto, NodeProto, TensorProto, helper, numpy_helper

Files = dict[str, bytes]
FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
FOLDER = Path(__file__).parent / "corpus"


@dataclass(frozen=True)
class Hostile:
    """A file and the codes of the errors in it; none: it is a sound model, and has to work."""

    name: str
    make: Callable[[], Files]
    errors: tuple[str, ...]


HOSTILE: list[Hostile] = []


def hostile(*errors: str) -> Callable[[Callable[[], Files]], Callable[[], Files]]:
    """Enter a function that makes files into the corpus."""

    def note(make: Callable[[], Files]) -> Callable[[], Files]:
        HOSTILE.append(Hostile(make.__name__, make, errors))
        return make

    return note


def of_folders() -> list[Hostile]:
    """The files of corpus/."""
    found: list[Hostile] = []
    for folder in sorted(p for p in FOLDER.glob("*") if p.is_dir()):
        models = [p for p in folder.iterdir() if p.suffix in (".onnx", ".xml")]
        files = {p.name: p.read_bytes() for p in (*models, *folder.glob("*.bin"))}
        errors = tuple((folder / "errors.txt").read_text("utf-8").split())
        found.append(Hostile(folder.name, lambda files=files: files, errors))
    return found


# ------------------------------------------------------------------------------- writing models
def sized(name: str, shape: Sequence[int | str] | None, kind: int = FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def whole(name: str, numbers: Any) -> TensorProto:
    return numpy_helper.from_array(np.array(numbers, np.int64), name)


def real(name: str, numbers: Any) -> TensorProto:
    return numpy_helper.from_array(np.array(numbers, np.float32), name)


X, Y = sized("x", [2, 4]), sized("y", None)


def model(
    nodes: Sequence[NodeProto],
    inputs: Sequence[Any] = (X,),
    outputs: Sequence[Any] = (Y,),
    constants: Sequence[TensorProto] = (),
    opset: int = 18,
    functions: Sequence[FunctionProto] = (),
    **domains: int,
) -> Files:
    graph = helper.make_graph(nodes, "g", inputs, outputs, constants)
    opsets = [helper.make_opsetid(d, v) for d, v in {"": opset, **domains}.items()]
    made = helper.make_model(graph, opset_imports=opsets, ir_version=8, functions=functions)
    return {"m.onnx": made.SerializeToString()}


def node(kind: str, inputs: str, outputs: str = "y", **attributes: Any) -> NodeProto:
    """A node; operands and results in one text each, `_` for one that is left out."""
    names = [["" if n == "_" else n for n in side.split()] for side in (inputs, outputs)]
    return helper.make_node(kind, *names, **attributes)


def document(encoding: str, end: str = "</net>") -> Files:
    return {"m.xml": f'<?xml version="1.0" encoding="{encoding}"?><net name="m" version="11"><layers/>{end}'.encode()}


# ---------------------------------------------------------------------------- small files, large work
@hostile("IRC3301")
def an_operand_says_rank_of_two_to_the_32() -> Files:
    return model([node("Reshape", "x s")], [X, sized("s", [2**32], INT64)])


@hostile()
def sums_of_sizes_are_squared_seven_times() -> Files:
    squares = [node("Mul", f"q{k} q{k}", f"q{k + 1}") for k in range(7)]
    nodes = [node("Shape", "x", "s"), node("ReduceSum", "s", "q0", keepdims=1), *squares, node("Neg", "q7")]
    return model(nodes, [sized("x", ["N", "M", "K", "L"])], [sized("y", None, INT64)])


@hostile("IRC3301")
def split_in_a_million_million_parts() -> Files:
    return model([node("Split", "x", num_outputs=2**40)])


@hostile()
def slices_of_slices_of_an_unknown_size() -> Files:
    nodes = [node("Slice", f"v{k} a b i s" if k else "x a b i s", f"v{k + 1}") for k in range(200)]
    bounds = [whole("a", [1]), whole("b", [2**62]), whole("i", [0]), whole("s", [2])]
    return model([*nodes, node("Neg", "v200")], [sized("x", ["N", 4])], constants=bounds)


@hostile()
def a_chain_of_1500_sines() -> Files:
    nodes = [node("Sin", f"v{k}" if k else "x", f"v{k + 1}") for k in range(1500)]
    return model([*nodes, node("Neg", "v1500")])


@hostile()
def a_part_of_a_split_of_unknown_sizes_is_nowhere_said() -> Files:
    """OpenVINO's Split has no words for this, and each way around it leads to a larger one of the same kind."""
    return model([node("Split", "x", "y z", num_outputs=2, axis=1)], [sized("x", ["n6", "n4"])], [Y, sized("z", None)])


# ------------------------------------------------------------------------------------------- files
def stored_at(location: str, **more: str) -> Files:
    """A constant whose data stand in another file."""
    w = TensorProto(name="w", data_type=FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, **more}.items():
        w.external_data.add(key=key, value=value)
    return model([node("Add", "x w")], constants=[w])


@hostile("IRC1462")
def weights_in_a_file_of_the_system() -> Files:
    return stored_at("/etc/hostname")


@hostile("IRC1462")
def weights_above_the_folder() -> Files:
    return stored_at("../m.onnx")


@hostile("IRC1463")
def weights_in_the_folder_itself() -> Files:
    return stored_at(".")


@hostile("IRC1465")
def weights_in_no_file_at_all() -> Files:
    return stored_at("w\0.bin", offset="9" * 30)


# ------------------------------------------------------------------------------------------- names
@hostile()
def a_size_is_called_class() -> Files:
    nodes = [node("Shape", "x", "s"), node("Relu", "x")]
    return model(nodes, [sized("x", ["class", "HUGE_VAL"])], [sized("s", [2], INT64), Y])


@hostile()
def a_size_has_a_name_that_python_normalises() -> Files:
    nodes = [node("Shape", "x", "s"), node("Relu", "x")]
    return model(nodes, [sized("x", ["\uff58", '*/ "\\'])], [sized("s", [2], INT64), Y])


@hostile()
def a_graph_has_a_nul_in_its_name() -> Files:
    graph = helper.make_graph([node("Relu", "x")], "a\0b", [X], [Y])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return {"m.onnx": made.SerializeToString()}


@hostile("IRC1527")
def an_input_has_no_name() -> Files:
    return model([node("Relu", "x")], [X, sized("", [1])])


# ---------------------------------------------------------------------------------------- documents
@hostile()
def an_encoding_that_nobody_knows() -> Files:
    return document("x-unknown")


@hostile()
def an_encoding_that_only_lxml_knows() -> Files:
    return document("ucs-4")


@hostile("IRC1003")
def an_encoding_of_two_bytes() -> Files:
    return document("shift_jis", "</nte>")


# --------------------------------------------------------------------------------------- operations
@hostile("IRC3105")
def a_slice_with_scalar_starts() -> Files:
    return model([node("Slice", "x a a")], constants=[whole("a", 1)])


@hostile("IRC3105")
def a_slice_whose_bounds_are_a_matrix() -> Files:
    return model([node("Slice", "w a a")], [], constants=[real("w", [1, 2]), whole("a", [[1]])])


@hostile("IRC3109")
def an_expansion_to_a_negative_size() -> Files:
    return model([node("Expand", "w s")], [], constants=[real("w", [1]), whole("s", [-1])])


@hostile("IRC3105")
def an_attention_of_rank_2() -> Files:
    keys = [sized("k", [2, 3, 6, 8]), sized("v", [2, 3, 6, 8])]
    return model([node("Attention", "q k v")], [sized("q", [2, 4]), *keys], opset=23)


@hostile()
def an_attention_of_unknown_rank() -> Files:
    keys = [sized("k", [2, 3, 6, 8]), sized("v", [2, 3, 6, 8])]
    return model([node("Attention", "q k v")], [sized("q", None), *keys], opset=23)


@hostile("IRC3105")
def a_recurrent_bias_of_one_dimension() -> Files:
    shapes = {"x": [1, 3, 3], "w": [1, 5, 3], "r": [1, 5, 5], "b": [10]}
    return model([node("RNN", "x w r b", "_ y", hidden_size=5)], [sized(n, s) for n, s in shapes.items()])


@hostile()
def an_operation_of_somebody_else_called_readvalue() -> Files:
    return model([node("ReadValue", "x", domain="acme")], outputs=[sized("y", [2, 4])], acme=1)


@hostile()
def a_flip_of_nothing() -> Files:
    """From the end to before the beginning: as many steps backwards as there are elements, which is none."""
    bounds = [whole("a", [-1]), whole("b", [-(2**63) + 1]), whole("i", [0]), whole("s", [-1])]
    return model([node("Slice", "x a b i s")], [sized("x", [0])], constants=bounds)


@hostile()
def a_backward_slice_of_an_empty_axis() -> Files:
    nodes = [node("Slice", "x a b i s", "v"), node("Gemm", "v w")]
    bounds = [whole("a", [0]), whole("b", [-1]), whole("i", [1]), whole("s", [-1])]
    return model(nodes, [sized("x", [3, 0])], constants=[*bounds, real("w", np.zeros((0, 3)))])


@hostile()
def an_image_is_resized_to_nothing() -> Files:
    """The kernel that smooths it would be infinitely wide."""
    resize = node("Resize", "x _ _ s", mode="cubic", antialias=1, axes=[2, 3])
    return model([resize], [sized("x", [1, 2, 5, 7])], constants=[whole("s", [0, 9])], opset=19)


@hostile("IRC2207")
def an_image_is_resized_by_the_scale_0() -> Files:
    return model([node("Resize", "x _ s", mode="linear", axes=[1])], constants=[real("s", [0])], opset=19)


@hostile()
def a_layer_that_nothing_needs_lacks_an_operand() -> Files:
    """OpenVINO does not look at such layers, so they are neither compiled nor written."""
    size = "<dim>2</dim>"
    return {
        "m.xml": f"""<?xml version="1.0"?><net name="m" version="11"><layers>
<layer id="0" name="x" type="Parameter" version="opset1"><data shape="2" element_type="f32"/>
  <output><port id="0" precision="FP32">{size}</port></output></layer>
<layer id="1" name="dead" type="Add" version="opset1">
  <input><port id="0" precision="FP32">{size}</port><port id="1" precision="FP32">{size}</port></input>
  <output><port id="2" precision="FP32">{size}</port></output></layer>
<layer id="2" name="dead2" type="Relu" version="opset1"><input><port id="0" precision="FP32">{size}</port></input>
  <output><port id="1" precision="FP32">{size}</port></output></layer>
<layer id="3" name="y" type="Result" version="opset1"><input><port id="0" precision="FP32">{size}</port></input></layer>
</layers><edges><edge from-layer="0" from-port="0" to-layer="3" to-port="0"/>
<edge from-layer="0" from-port="0" to-layer="1" to-port="0"/>
<edge from-layer="1" from-port="2" to-layer="2" to-port="0"/>
</edges></net>""".encode()
    }


@hostile("IRC1546")
def functions_call_the_one_before_twice() -> Files:
    made: list[FunctionProto] = []
    for k in range(17):
        name, domain = (f"F{k - 1}", "f") if k else ("Relu", "")
        body = [node(name, "a", "b", domain=domain), node(name, "b", "c", domain=domain)]
        opsets = [helper.make_opsetid("", 18), helper.make_opsetid("f", 1)]
        made.append(helper.make_function("f", f"F{k}", ["a"], ["c"], body, opsets))
    return model([node("F16", "x", domain="f")], functions=made, f=1)


@hostile("IRC3106")
def an_old_split_along_an_axis_that_is_not_there() -> Files:
    return model([node("Split", "x", "y z", axis=-2, split=[2, 1])], [sized("x", [3])], opset=6)


@hostile("IRC3109")
def an_attention_without_features() -> Files:
    keys = [sized("k", [2, 3, 6, 8]), sized("v", [2, 3, 6, 8])]
    return model([node("Attention", "q k v")], [sized("q", [2, 3, 4, 0]), *keys], opset=23)


@hostile()
def a_transposed_convolution_with_weights_of_unknown_size() -> Files:
    """To write it as OpenVINO's asks for numbers."""
    convolution = node("ConvTranspose", "x w", auto_pad="SAME_UPPER", output_shape=[8, 8])
    return model([convolution], [sized("x", ["N", 3, 4, 4]), sized("w", [3, 2, "A", "B"])], opset=11)


@hostile("IRC2208")
def a_transposed_convolution_has_an_output_shape_for_one_of_two_axes() -> Files:
    convolution = node("ConvTranspose", "x w", strides=[2, 2], output_shape=[8])
    return model([convolution], [sized("x", [1, 3, 4, 5]), sized("w", [3, 4, 3, 3])])


@hostile("IRC2104")
def texts_are_resized_linearly() -> Files:
    resize = node("Resize", "x _ _ s", mode="linear", axes=[1])
    return model([resize], [sized("x", [2, 4], TensorProto.STRING)], constants=[whole("s", [3])])


@hostile("IRC2207")
def a_pool_sums_powers_of_zero() -> Files:
    return model([node("LpPool", "x", kernel_shape=[2], p=0)], [sized("x", [1, 2, 4])])


@hostile()
def a_pool_sums_powers_of_a_million_million() -> Files:
    return model([node("LpPool", "x", kernel_shape=[2], p=2**40)], [sized("x", [1, 2, 4])])


@hostile()
def a_scalar_is_a_vector_of_unknown_size() -> Files:
    return model([node("Clip", "x _ m")], [sized("x", [2, 4]), sized("m", ["N"])])


@hostile()
def a_pool_of_unknown_rank() -> Files:
    """OpenVINO's says strides for each axis, and there is no telling how many."""
    return model([node("MaxPool", "x", kernel_shape=[2, 2])], [sized("x", None)])


@hostile("IRC2203")
def a_whole_float_stands_where_an_integer_belongs() -> Files:
    return model([node("Softmax", "x", axis=1.0)])


@hostile("IRC2203")
def a_text_of_digits_stands_where_an_integer_belongs() -> Files:
    return model([node("Softmax", "x", axis="1")])


@hostile()
def axes_of_a_sum_that_only_a_run_tells() -> Files:
    return model([node("ReduceSum", "x a")], [X, sized("a", [1], INT64)])


@hostile()
def one_operand_is_joined_to_itself_5000_times() -> Files:
    return model([node("Concat", " ".join(["x"] * 5000), axis=0)])


@hostile("IRC3301")
def an_axis_shrinks_to_a_thousand_millionth() -> Files:
    """Antialiasing adds as many elements for each that is left."""
    resize = node("Resize", "x _ s", mode="linear", antialias=1)
    return model([resize], [sized("x", ["N", 4])], constants=[real("s", [1e-9, 1])], opset=19)


@hostile()
def constants_grow_ninefold_eleven_times() -> Files:
    """Folding them ends where the memory that constants may take ends."""
    joined = [node("Concat", " ".join([f"c{k}"] * 9), f"c{k + 1}", axis=0) for k in range(11)]
    return model([*joined, node("ReduceSum", "c11")], [], constants=[real("c0", [1])])


@hostile()
def a_size_is_five_less_than_an_input_may_have() -> Files:
    nodes = [node("Shape", "x", "s"), node("Sub", "s five", "t"), node("ConstantOfShape", "t")]
    return model(nodes, [sized("x", ["N"])], constants=[whole("five", [5])])


@hostile()
def a_constant_of_single_bits_is_the_result() -> Files:
    """ONNX has no such type, nor a node that could give it another name."""
    return {
        "m.xml": b"""<?xml version="1.0"?><net name="m" version="11"><layers>
<layer id="0" name="c" type="Const" version="opset1"><data element_type="u1" shape="127" offset="0" size="16"/>
  <output><port id="0" precision="BIN"><dim>127</dim></port></output></layer>
<layer id="1" name="y" type="Result" version="opset1"><input><port id="0" precision="BIN"><dim>127</dim></port></input>
</layer></layers><edges><edge from-layer="0" from-port="0" to-layer="1" to-port="0"/></edges></net>""",
        "m.bin": bytes(16),
    }
