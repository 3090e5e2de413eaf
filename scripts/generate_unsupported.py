"""Rewrite irc/ops/unsupported.toml: the operations of the schemas that irc has no row for.

    python scripts/generate_unsupported.py [--check]

A reason that was written by hand is kept.  --check fails (status 1) where the file is out of date.
"""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path

from irc.opdef.registry import FORMS, load_all

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "irc" / "ops" / "unsupported.toml"
CONTAINER = {"Parameter", "Const", "Result"}
"""Layers that the OpenVINO reader itself understands: no operation stands behind them."""
DEFAULT_REASON = "no definition yet"
HEAD = """\
# Operations that exist in a format and that irc does not support yet, with the reason.
# Written by scripts/generate_unsupported.py from schemas/ and the operation tables; a reason may be edited.
# `tests/opdef/test_forms.py` demands that every operation of the schemas is a Form or a row here.
"""


def schema_rows() -> dict[tuple[str, str, str], int]:
    """(format, domain, name) → the version it first appeared in; deprecated ones are no operations."""
    found: dict[tuple[str, str, str], int] = {}
    for row in json.loads((ROOT / "schemas" / "onnx_ops.json").read_text("utf-8"))["ops"]:
        if not row["deprecated"]:
            key = ("onnx", row["domain"], row["name"])
            found[key] = min(found.get(key, row["since_version"]), row["since_version"])
    for row in json.loads((ROOT / "schemas" / "openvino_ops.json").read_text("utf-8"))["ops"]:
        if row["type"] not in CONTAINER:
            key = ("openvino", "", row["type"])
            found[key] = min(found.get(key, row["opset"]), row["opset"])
    return found


def text() -> str:
    load_all()
    known = tomllib.loads(TARGET.read_text("utf-8")).get("operation", []) if TARGET.exists() else []
    reasons = {(r["format"], r.get("domain", ""), r["name"]): r["reason"] for r in known}
    parts = [HEAD]
    for (format, domain, name), since in sorted(schema_rows().items()):
        if (format, domain, name.lower()) in FORMS:
            continue
        reason = json.dumps(reasons.get((format, domain, name), DEFAULT_REASON), ensure_ascii=False)
        lines = [f'format = "{format}"', f'domain = "{domain}"', f'name = "{name}"', f"since = {since}"]
        parts.append("\n".join(["[[operation]]", *lines, f"reason = {reason}"]) + "\n")
    return "\n".join(parts)


def main() -> int:
    wanted = text()
    if "--check" in sys.argv[1:]:
        return 0 if TARGET.read_text("utf-8") == wanted else 1
    TARGET.write_text(wanted, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
