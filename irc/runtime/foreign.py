"""Tensors of other libraries as NumPy arrays over the same memory: torch's, and what speaks DLPack.

Nothing is copied and no library is imported: a torch tensor can only be given where torch is loaded.
"""

from __future__ import annotations

import sys
from typing import Any, cast

import numpy as np

from irc.arrays import Array
from irc.diagnostics.codes import runtime_io as codes
from irc.runtime.element_types import numpy_dtype
from irc.runtime.errors import InputTypeError, failure

_VIEWED = {
    "bfloat16": ("int16", "bf16"),
    "float8_e4m3fn": ("uint8", "f8e4m3fn"),
    "float8_e4m3fnuz": ("uint8", "f8e4m3fnuz"),
    "float8_e5m2": ("uint8", "f8e5m2"),
    "float8_e5m2fnuz": ("uint8", "f8e5m2fnuz"),
}
"""torch's types that NumPy lacks: the type of the same size that both have, and irc's name."""


def shared(value: Any, role: str, name: str) -> Any:
    """Give the memory of another library's tensor as an array; anything else is handed through.

    Raises InputTypeError, which says why, where there is no such memory: a tensor on a GPU, a sparse one.
    """
    if isinstance(value, np.ndarray):
        return cast("Any", value)
    torch = sys.modules.get("torch")
    try:
        if torch is not None and isinstance(value, getattr(torch, "Tensor", ())):
            return _of_torch(torch, value, role)
        if hasattr(value, "__dlpack__") and (role == "output" or not hasattr(value, "__array__")):
            return np.from_dlpack(value)
    except (TypeError, ValueError, RuntimeError, BufferError, AttributeError) as e:
        reason = str(e).partition("\n")[0] or type(e).__name__
        kind = f"{type(cast('object', value)).__module__}.{type(cast('object', value)).__qualname__}"
        raise failure(
            codes.FOREIGN_TENSOR, InputTypeError, role=role, name=name, kind=kind, reason=reason.rstrip(".")
        ) from e
    return value


def _of_torch(torch: Any, tensor: Any, role: str) -> Array:
    """Share the memory of a torch tensor.  An input's history of gradients is left behind."""
    if tensor.device.type != "cpu":
        raise ValueError(f"it is on the device {tensor.device}, and irc computes on the CPU: tensor.cpu() copies it")
    if tensor.layout is not torch.strided:
        raise ValueError(f"its layout is {tensor.layout}: tensor.to_dense() copies it")
    if tensor.requires_grad:
        if role == "output":
            raise ValueError("it requires grad, and irc records no gradients: give tensor.detach()")
        tensor = tensor.detach()
    if role != "output":
        tensor = tensor.resolve_conj().resolve_neg()
    found = _VIEWED.get(str(tensor.dtype).removeprefix("torch."))
    if found is None:
        return tensor.numpy()
    return tensor.view(getattr(torch, found[0])).numpy().view(numpy_dtype(found[1]))
