"""Metadata between the formats: `metadata_props` of ONNX and the section "framework" of OpenVINO's `<rt_info>`.

OpenVINO's own ONNX reader puts them there too.  What else stands in `<rt_info>` has no place in ONNX.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from irc.version import VERSION

SECTION = "framework"
PRODUCER = "irc"
"""What files of irc's own say wrote them."""


def to_runtime_info(metadata: Mapping[str, str]) -> dict[str, Any]:
    """The `extras` of an OpenVINO model with this metadata, which irc wrote."""
    entries = [{"#tag": "info", "name": key, "value": value} for key, value in metadata.items()]
    sections = [{"#tag": SECTION, "#children": entries}] if entries else []
    return {"rt_info": [{"#tag": "info", "name": PRODUCER, "value": VERSION}, *sections]}


def producer() -> dict[str, Any]:
    """The `extras` of an ONNX model that irc wrote."""
    return {"producer_name": PRODUCER, "producer_version": VERSION}


def of_runtime_info(extras: Mapping[str, Any]) -> dict[str, str]:
    """The metadata in an OpenVINO model's `extras`."""
    sections = [tree for tree in extras.get("rt_info", ()) if key_of(tree) == SECTION]
    entries = [entry for tree in sections for entry in tree.get("#children", ())]
    return {key_of(e): str(e["value"]) for e in entries if "value" in e}


def key_of(tree: Mapping[str, Any]) -> str:
    """The key of an entry: `<info name="key">`, or `<key>` as older versions write it."""
    return str(tree.get("name", "")) if tree.get("#tag") == "info" else str(tree.get("#tag", ""))
