"""What a reader hands over and a writer is given: the file's content, no operation knowledge.

Both formats are read into these classes; `irc.border` turns them into a Graph and back.
Values are named by `key`, unique in a model: for ONNX the tensor's name, for OpenVINO
"layer:port" (bodies: prefixed with the path of the layer that holds them).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from irc.arrays import Array
from irc.diagnostics import NOWHERE, Loc
from irc.ir.types import DType, Extras, Type

Attr: TypeAlias = "int | float | str | bytes | RawTensor | RawGraph | Type | Sequence[Attr] | None"
"""A decoded attribute.  OpenVINO: always the string in the file.  None: it could not be read, which is reported."""


@dataclass
class RawTensor:
    """A constant.  `load()` gives the array (whole elements, `dtype.numpy`), mapped where possible."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    load: Callable[[], Array]
    loc: Loc = NOWHERE
    extras: Extras = field(default_factory=Extras)


@dataclass
class RawValue:
    """A graph input, output or annotated tensor.

    `names` are the tensor names a user may call it by (OpenVINO: `names=` of the port; ONNX:
    the name).  `type` is what the file declares, None where it declares nothing.
    """

    key: str
    names: tuple[str, ...] = ()
    type: Type | None = None
    loc: Loc = NOWHERE
    extras: Extras = field(default_factory=Extras)  # layout, rt_info, doc string, denotations


@dataclass
class RawNode:
    """A layer or node: the operation's name and version as written, operands by key ("" = absent).

    `version` is the opset the operation's definition is taken from: ONNX, the `opset_import` of
    its domain; OpenVINO, the N of `version="opsetN"` (for other spellings, `extras["version"]`
    keeps the text).
    """

    type: str
    version: int
    domain: str = ""
    name: str = ""
    inputs: list[str] = field(default_factory=list[str])
    outputs: list[RawValue] = field(default_factory=list[RawValue])
    attrs: dict[str, Attr] = field(default_factory=dict[str, Attr])
    loc: Loc = NOWHERE
    input_types: list[Type | None] = field(default_factory=list["Type | None"])  # declared on input ports (OpenVINO)
    bodies: dict[str, RawGraph] = field(default_factory=dict[str, "RawGraph"])  # OpenVINO: body, then_body, else_body
    extras: Extras = field(default_factory=Extras)  # rt_info, port maps, doc string, metadata


@dataclass
class RawGraph:
    """A graph or a body: `constants` by key; `outputs` name the keys that leave it, in order."""

    name: str = ""
    inputs: list[RawValue] = field(default_factory=list[RawValue])
    outputs: list[RawValue] = field(default_factory=list[RawValue])
    nodes: list[RawNode] = field(default_factory=list[RawNode])
    constants: dict[str, RawTensor] = field(default_factory=dict[str, RawTensor])
    values: dict[str, RawValue] = field(default_factory=dict[str, RawValue])  # ONNX value_info by key
    loc: Loc = NOWHERE
    extras: Extras = field(default_factory=Extras)


@dataclass
class RawFunction:
    """An ONNX model-local function: operands and results by name, its own opset imports."""

    name: str
    domain: str
    overload: str
    inputs: list[str]
    outputs: list[str]
    attributes: list[str]
    attribute_defaults: dict[str, Attr]
    nodes: list[RawNode]
    opsets: dict[str, int]
    values: dict[str, RawValue] = field(default_factory=dict[str, RawValue])
    extras: Extras = field(default_factory=Extras)


@dataclass
class RawModel:
    """A file's content.  `format` is "onnx" or "openvino"; `version` is the ir_version or the IR version."""

    format: str
    version: int
    graph: RawGraph
    opsets: dict[str, int] = field(default_factory=dict[str, int])  # ONNX: domain ("" = ai.onnx) to version
    functions: list[RawFunction] = field(default_factory=list[RawFunction])
    metadata: dict[str, str] = field(default_factory=dict[str, str])
    extras: Extras = field(default_factory=Extras)  # producer, model version, doc string, rt_info tree
    file: str = ""
