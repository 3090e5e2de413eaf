"""What CONTRIBUTING.md adds really works, from that text alone: an operation, read, checked, compiled and written; a
kernel, selected, compiled and held against its NumPy."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

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


KERNEL = """
import numpy as np, onnx
import irc
from irc.driver import generate_sources, CompileOptions
from irc.ir.dim import Dim
from irc.kernels.core.epilogue import plain
from irc.kernels.core.isa import ISAS
from irc.kernels.core.reference import run
from irc.kernels.core.registry import select

weights = np.arange(64 * 80, dtype=np.float32).reshape(64, 80) % 7 - 3
model = onnx.parser.parse_model('''
    <ir_version: 8, opset_import: ["" : 17]>
    m (float[1, 64] x) => (float[1, 80] y) <float[64, 80] w = {%s}> { y = MatMul(x, w) }'''
    % ", ".join(map(str, weights.reshape(-1))))
for isa in (ISAS["avx512"], ISAS["avx2"], ISAS["sse"]):
    problem = GemmProblem.contiguous(plain(), 1, 80, 64, True)
    chosen = select(problem, isa)
    assert isinstance(chosen, RowTimesMatrix), chosen
    assert not isinstance(select(GemmProblem.contiguous(plain(), 2, 80, 64, True), isa), RowTimesMatrix)

x = np.linspace(-1, 1, 64, dtype=np.float32)[None]
compiled = irc.compile(model, backend="c", cache=False)
(got,) = compiled(x)
np.testing.assert_allclose(got, x @ weights, rtol=1e-5, atol=1e-5)
y = np.zeros(80, np.float32)
packed = chosen.packed(problem).pack(weights)
run(chosen, [x[0], packed], [y], {n: int(v) for n, v in chosen.arguments_for(problem).items()})
np.testing.assert_allclose(y, got[0], rtol=1e-5, atol=1e-5)
compiled.save("out")
texts = [p.read_text() for p in __import__("pathlib").Path("out").glob("*.c")]
assert any(chosen.summary in text for text in texts), "the kernel is not in the C"
print("works")
"""


@pytest.mark.parametrize("trial", [pytest.param(0, id="operation"), pytest.param(1, id="kernel")])
def test_the_worked_example_works(trial: int, tmp_path: Path) -> None:
    examples = re.findall(r"```python\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text("utf-8"), re.DOTALL)
    assert len(examples) == 2
    (tmp_path / "trial.py").write_text(examples[trial] + (TRIAL, KERNEL)[trial], "utf-8")
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
