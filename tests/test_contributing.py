"""The operation that CONTRIBUTING.md adds really works: read, checked, compiled and written from that text alone."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

TRIAL = """
import sys
import numpy as np, onnx
import irc

model = onnx.parser.parse_model('''
    <ir_version: 8, opset_import: ["" : 17, "com.example" : 13]>
    m (float[n, 3] x) => (float[n, 3] y) { a = com.example.Cube <scale = 0.5> (x)  y = Relu(a) }''')
x = np.array([[1, -2, 3], [0.5, 4, -1]], np.float32)
want = np.maximum(0.5 * x**3, 0)
for backend in ("numpy", "c"):
    (got,) = irc.compile(model, backend=backend, cache=False)(x)
    np.testing.assert_allclose(got, want, rtol=1e-6)
assert irc.validate(model.SerializeToString()) == []
irc.save(irc.load(model), sys.argv[1])
(node, _) = onnx.load(sys.argv[1]).graph.node
assert (node.op_type, node.domain, node.attribute[0].f) == ("Cube", "com.example", 0.5)

model.opset_import[1].version = 9
model.graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.BFLOAT16
assert "IRC2104" in [d.code for d in irc.validate(model.SerializeToString())]  # bf16 came with version 13
print("works")
"""


def test_the_worked_example_works(tmp_path: Path) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text("utf-8"), re.DOTALL)
    (tmp_path / "trial.py").write_text(example + TRIAL, "utf-8")
    command = [sys.executable, str(tmp_path / "trial.py"), str(tmp_path / "m.onnx")]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout == "works\n", done.stderr
