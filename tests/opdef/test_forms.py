"""The operation tables against the formats' own: every version of every operation, with its attributes,
defaults, element types and operands, is a Form or a row of unsupported.toml.

The oracles are schemas/onnx_ops.json and schemas/openvino_ops.json, which know nothing of irc.
"""

import json
import tomllib
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from irc.ir.types import DTYPES, INTEGERS, DType, dtype_from_ov
from irc.opdef.base import Op
from irc.opdef.codecs import REQUIRED, AsInput, Codec, DTypeAttr, Ignored, Pads
from irc.opdef.forms import MICROSOFT, Form
from irc.opdef.registry import FORMS, load_all
from irc.opdef.signature import Sig

SCHEMAS = Path(__file__).resolve().parents[2] / "schemas"
EVERY_ONNX = json.loads((SCHEMAS / "onnx_ops.json").read_text("utf-8"))["ops"]
ONNX = [r for r in EVERY_ONNX if not r["deprecated"]]
IN_THE_STANDARD_DOMAIN = {"SimplifiedLayerNormalization"}
"""Operators of ONNX Runtime that it writes into the standard's domain."""
CONTAINER = {"Parameter", "Const", "Result"}
EVERY_OPENVINO = json.loads((SCHEMAS / "openvino_ops.json").read_text("utf-8"))["ops"]
OPENVINO = [r for r in EVERY_OPENVINO if r["type"] not in CONTAINER]
NAMES = {
    "float": "f32",
    "double": "f64",
    "float16": "f16",
    "bfloat16": "bf16",
    "bool": "bool",
    "string": "string",
    "complex64": "c64",
    "complex128": "c128",
    "float8e4m3fn": "f8e4m3fn",
    "float8e4m3fnuz": "f8e4m3fnuz",
    "float8e5m2": "f8e5m2",
    "float8e5m2fnuz": "f8e5m2fnuz",
    "float8e8m0": "f8e8m0",
    "float4e2m1": "f4e2m1",
    "float6e2m3": "f6e2m3",
    "float6e3m2": "f6e3m2",
}
MANY = 15
"""An OpenVINO operand with more types than this was accepted with whatever was tried: nothing is specified."""
EACH_AXIS = {"", "0", "1", "allzeros", "1,1,...", "none"}
"""How the catalogue says that every axis has the usual value, which is an empty list here."""
ASSUMED = "the specification requires it: absence is an error, although the reader takes ones"
REFUSED = "the specification has a default, but OpenVINO's reader refuses the layer without it"
DEFORMABLE = ("data: missing", "deformable_values: missing", "offsets: missing", "filters: missing", "mask: missing")
KNOWN: dict[str, dict[str, str]] = {
    "onnx Identity-1": {"input": "any value may pass"},
    "onnx Identity-13": {"input": "any value may pass"},
    "onnx BatchNormalization-1": {"consumed_inputs": "without effect", "5 results": "those of training are not read"},
    **{f"onnx BatchNormalization-{n}": {"5 results": "those of training are not read"} for n in (6, 7, 9)},
    **{f"onnx BatchNormalization-{n}": {"3 results": "those of training are not read"} for n in (14, 15)},
    "onnx LayerNormalization-17": {"3 results": "mean and inverse deviation are not read"},
    **{f"onnx Loop-{n}": {"v_initial": "each value has a type of its own"} for n in (1, 11)},
    **{f"onnx {n}-1": {"inputs": "each tensor has a type of its own"} for n in ("Adagrad", "Adam", "Momentum")},
    "onnx Gradient-1": {"Inputs": "each value has a type of its own"},
    **{
        f"onnx Scan-{n}": {"initial_state_and_scan_inputs": "each value has a type of its own"}
        for n in (8, 9, 11, 16, 19, 21, 23, 24, 25)
    },
    "openvino Divide-1": {"m_pythondiv": "the CPU plugin truncates whatever it says"},
    **{f"openvino AvgPool-{n}": {"exclude-pad": "what absence means to the reader"} for n in (1, 14, 16)},
    **{
        f"openvino {n}-1": {
            "dilations": ASSUMED,
            "strides": ASSUMED,
            "output_shape": "i32 and i64 are specified",
            "auto_pad": "none is explicit",
        }
        for n in ("Convolution", "ConvolutionBackpropData", "GroupConvolution", "GroupConvolutionBackpropData")
    },
    **{f"openvino {n}-1": {"block_size: required": REFUSED} for n in ("DepthToSpace", "SpaceToDepth")},
    "openvino ShapeOf-3": {"output_type": REFUSED},
    "openvino BinaryConvolution-1": {
        "dilations": ASSUMED,
        "strides": ASSUMED,
        "pads_begin": "zeros are left out",
        "pads_end": "zeros are left out",
    },
    "openvino CTCLoss-4": {"ctc_merge_repeated": "the reader takes false where the specification has true"},
    "openvino FakeQuantize-1": {"levels": "the reader takes 0, which means nothing"},
    "openvino SliceScatter-15": {"stop": "integers are specified", "step": "integers are specified"},
    "openvino LRN-1": {"axes": "optional to the reader only"},
    "openvino MVN-2": {"reduction_axes": "an alternative to across_channels"},
    "openvino ReadValue-6": {"init_value": "optional in opset 6"},
    **{f"openvino MulticlassNms-{n}": {"sort_result": "OpenVINO calls it sort_result_type"} for n in (8, 9)},
    **{
        f"openvino DeformableConvolution-{n}": {
            "dilations": ASSUMED,
            "strides": ASSUMED,
            **dict.fromkeys(DEFORMABLE, "integers: nothing is between them"),
            **dict.fromkeys(("pads_begin", "pads_end"), "an empty list is one of zeros"),
        }
        for n in (1, 8)
    },
    **{
        f"openvino {n}": dict.fromkeys(("pooled_h", "pooled_w", "spatial_scale"), "nothing is pooled to no size")
        for n in ("ROIAlign-3", "ROIAlign-9", "ROIAlignRotated-15")
    },
    "openvino ExperimentalDetectronROIFeatureExtractor-6": {"output_size": "nothing is pooled to no size"},
    "openvino DeformablePSROIPooling-1": {"spatial_scale": "nothing is pooled to no size"},
    "openvino ROIPooling-2": dict.fromkeys(("pooled_h", "pooled_w"), "nothing is pooled to no size"),
    **{f"openvino Proposal-{n}": {"framework": "it is empty"} for n in (1, 4)},
    "openvino StridedSlice-1": {
        "strides": "the reader makes them 1",
        **{f"{k}_mask": "an empty mask is one of zeros" for k in ("ellipsis", "new_axis", "shrink_axis")},
    },
}
"""Differences that are meant: version → (what the difference starts with → why)."""
load_all()


def unexpected(row: str, differences: list[str]) -> list[str]:
    return [d for d in differences if not any(d.startswith(k) for k in KNOWN.get(row, {}))]


def unsupported() -> set[tuple[str, str, str]]:
    text = resources.files("irc.ops").joinpath("unsupported.toml").read_text("utf-8")
    rows = tomllib.loads(text).get("operation", [])
    return {(r["format"], r["domain"], r["name"].lower()) for r in rows}


def row_of(format: str, domain: str, name: str, version: int) -> tuple[Form, type[Op]] | None:
    rows = FORMS.get((format, domain, name.lower()), [])
    return next(((form, cls) for form, cls in rows if form.since == version), None)


def is_of_onnxruntime(form: Form) -> bool:
    """Whether ONNX Runtime defines the operator, which the standard does not: see test_microsoft_forms.py."""
    return form.domain == MICROSOFT or form.name in IN_THE_STANDARD_DOMAIN


def tensor_type(text: str) -> DType | None:
    """An element type from `tensor(float16)`; None for sequences, optionals and maps."""
    if not text.startswith("tensor("):
        return None
    name = text[len("tensor(") : -1]
    return DTYPES[NAMES.get(name, name.replace("uint", "u").replace("int", "i"))]


def operands(form: Form, cls: type[Op]) -> tuple[Sig, list[Any]]:
    """The parameters that the file's operands have, in its order."""
    sig = form.sig or cls.sig
    if form.sig is not None:
        return sig, list(sig.inputs)
    as_inputs = form.as_inputs()
    return sig, [p for i, p in enumerate(sig.inputs) if i not in as_inputs]


def same(a: Any, b: Any) -> bool:
    if isinstance(a, bytes):
        a = a.decode()
    if isinstance(a, float) or isinstance(b, float):
        return np.float32(a) == np.float32(b)
    return a == b


# ------------------------------------------------------------------------------------------- ONNX
def onnx_attribute(name: str, said: dict[str, Any], codec: Codec) -> list[str]:
    if isinstance(codec, Ignored):
        return [] if not said["required"] else [f"{name} is required, and ignored here"]
    required = codec.default is REQUIRED and not isinstance(codec, Pads)
    if required != said["required"]:
        return [f"{name}: required is {said['required']}, here {required}"]
    if "default" not in said or required:
        return []
    default = codec.default
    if isinstance(codec, AsInput):
        own = default if codec.scalar else list(default or ())
    else:
        own = None if default is None else codec.encode(default, "onnx")
    agrees = own is not None and same(said["default"], own)
    return [] if agrees else [f"{name}: default {said['default']!r}, here {own!r}"]


def onnx_types(row: dict[str, Any], form: Form, cls: type[Op]) -> list[str]:
    sig, params = operands(form, cls)
    found: list[str] = []
    for i, said in enumerate(row["inputs"]):
        if not params:
            break
        param = params[min(i, len(params) - 1)]
        texts = row["types"].get(said["type"], [said["type"]])
        types = {tensor_type(t) for t in texts}
        own = sig.allowed(param, form.types or None)
        if own is None:
            found += [] if None in types else [f"{said['name']}: any type here"]
        elif None not in types and types != own:
            more = sorted(map(str, own - types))
            less = sorted(map(str, types - own))
            found.append(f"{said['name']}: too many {more}, missing {less}")
    return found


def onnx_arity(row: dict[str, Any], form: Form, cls: type[Op]) -> list[str]:
    sig, params = operands(form, cls)
    least, most, _, results = row["arity"]
    variadic = any(p.variadic for p in params)
    needed = [i + 1 for i, p in enumerate(params) if not p.optional and not p.variadic]
    own = (max(needed, default=0), None if variadic else len(params))
    found: list[str] = []
    if variadic != (most > 1000):
        found.append(f"variadic operands: {most > 1000}, here {variadic}")
    elif not variadic and own != (least, most):
        found.append(f"{least}..{most} operands, here {own[0]}..{own[1]}")
    many = any(p.variadic for p in sig.outputs)
    if many != (results > 1000) or (not many and len(sig.outputs) != results):
        found.append(f"{results} results, here {'any number' if many else len(sig.outputs)}")
    return found


def onnx_differences(row: dict[str, Any]) -> list[str]:
    found = row_of("onnx", row["domain"], row["name"], row["since_version"])
    if found is None:
        return ["no row of this version"]
    form, cls = found
    own = {name: codec for name, codec in form.attrs.items() if name}
    differences: list[str] = []
    for name in sorted(own.keys() ^ row["attributes"].keys()):
        differences.append(f"{name}: {'not an attribute of this version' if name in own else 'attribute missing'}")
    for name in sorted(own.keys() & row["attributes"].keys()):
        differences += onnx_attribute(name, row["attributes"][name], own[name])
    return differences + onnx_types(row, form, cls) + onnx_arity(row, form, cls)


# --------------------------------------------------------------------------------------- OpenVINO
def openvino_text(value: Any) -> str:
    """A default as comparable text: lists without spaces, numbers as numbers."""
    text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
    parts: list[str] = []
    for part in text.lower().replace(" ", "").strip("[]").split(","):
        try:
            parts.append(f"{float(part):g}")
        except ValueError:
            parts.append(part)
    return ",".join(parts)


def openvino_attribute(name: str, said: dict[str, Any], codec: Codec) -> list[str]:
    """Default, and what an absent attribute means where the specification requires it."""
    if isinstance(codec, Ignored):
        return []
    needed = said["required"] and not isinstance(codec, Pads)
    if needed != (codec.default is REQUIRED):
        return [f"{name}: required is {needed}, here {codec.default is REQUIRED}"]
    wanted = said["default"] if not needed else said["absent"] if said.get("accepts_absence") else None
    own = codec.default if not needed else codec.assumed
    if wanted is None or wanted == "dynamic" or isinstance(codec, DTypeAttr):
        return []
    if own is REQUIRED:
        return [f"{name}: absence means {wanted}, here it is an error"]
    if (own is None or own == ()) and openvino_text(wanted) in EACH_AXIS:
        return []
    if own is None:
        return [f"{name}: default {wanted!r}, here None"]
    text = codec.encode(own, "openvino")
    return [] if openvino_text(text) == openvino_text(wanted) else [f"{name}: default {wanted!r}, here {text!r}"]


def openvino_operands(row: dict[str, Any], form: Form, cls: type[Op]) -> list[str]:
    sig, params = operands(form, cls)
    given = row["inputs"]
    found: list[str] = []
    variadic = any(p.variadic for p in params)
    if not variadic and len(params) != len(given):
        found.append(f"{len(given)} operands, here {len(params)}")
    for i, said in enumerate(given):
        if not params or (not variadic and i >= len(params)):
            break
        param = params[min(i, len(params) - 1)]
        if not param.variadic and param.optional == said["required"]:
            found.append(f"{said['name']}: required is {said['required']}, here {not param.optional}")
        types = {dtype_from_ov(t) for t in said["types"] or ()}
        own = sig.allowed(param, form.types or None)
        if own is not None and len(types) <= MANY and not types <= own:
            less = {t for t in types - own if t in INTEGERS or len(types) <= 12}
            found += [f"{said['name']}: missing {sorted(map(str, less))}"] if less else []
    return found


def openvino_differences(row: dict[str, Any]) -> list[str]:
    found = row_of("openvino", "", row["type"], row["opset"])
    if found is None:
        return ["no row of this version"]
    form, cls = found
    said = {a["name"]: a for a in row["attributes"]}
    differences: list[str] = []
    for name in sorted(said.keys() - form.attrs.keys()):
        differences.append(f"{name}: attribute missing")
    for name in sorted(form.attrs.keys() - said.keys()):
        if "." not in name and not form.attrs[name].silent and not isinstance(form.attrs[name], Ignored):
            differences.append(f"{name}: not an attribute of this version")
    for name in sorted(said.keys() & form.attrs.keys()):
        differences += openvino_attribute(name, said[name], form.attrs[name])
    rows = FORMS[("openvino", "", row["type"].lower())]
    end = row["member_of_opsets"][-1]
    later = [f.since for f, _ in rows if f.since > row["opset"]]
    if end < 16 and not (later and min(later) <= end + 1) and form.last != end:
        differences.append(f"last opset {end}, here {form.last}")
    return differences + openvino_operands(row, form, cls)


# ------------------------------------------------------------------------------------------ tests
def label(row: dict[str, Any]) -> str:
    name = row.get("name") or row["type"]
    return f"{name}-{row.get('since_version') or row['opset']}"


@pytest.mark.parametrize("row", ONNX, ids=label)
def test_onnx(row: dict[str, Any]) -> None:
    if ("onnx", row["domain"], row["name"].lower()) in unsupported():
        return
    assert not unexpected(f"onnx {label(row)}", onnx_differences(row))


@pytest.mark.parametrize("row", OPENVINO, ids=label)
def test_openvino(row: dict[str, Any]) -> None:
    if ("openvino", "", row["type"].lower()) in unsupported():
        return
    assert not unexpected(f"openvino {label(row)}", openvino_differences(row))


def test_unsupported_lists_only_what_is_missing() -> None:
    stale = sorted(row for row in unsupported() if row in FORMS)
    assert not stale, "these have rows now: run scripts/generate_unsupported.py"


def test_every_row_is_of_a_version_that_exists() -> None:
    known = {("onnx", r["domain"], r["name"].lower(), r["since_version"]) for r in EVERY_ONNX}
    known |= {("openvino", "", r["type"].lower(), r["opset"]) for r in OPENVINO}
    invented = [
        f"{format} {form.name}-{form.since}"
        for (format, domain, name), rows in FORMS.items()
        for form, _ in rows
        if name and (format, domain, name, form.since) not in known and not is_of_onnxruntime(form)
    ]
    assert not invented
