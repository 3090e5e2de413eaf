"""Tensors of other libraries: torch's, and what speaks DLPack."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import irc
from irc.diagnostics import RunError
from irc.runtime.errors import InputTypeError, InputValueError


class Exporter:
    """Something with memory that is no array: only DLPack says where it is."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


class Refusing(Exporter):
    """Something whose memory cannot be reached."""

    def __dlpack__(self, **options: Any) -> Any:
        raise BufferError("it is on another planet")


def negation(element_type: str) -> Any:
    b = irc.Builder(name="negation")
    b.output(b.Neg(b.input("x", element_type, ("n", 3))), "y")
    return irc.compile(b.model(), backend="numpy", cache=False)


@pytest.fixture(scope="module")
def negate() -> Any:
    return negation("f32")


X = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_dlpack_memory_is_read_and_written(negate: Any) -> None:
    np.testing.assert_array_equal(negate(Exporter(X))[0], -X)
    memory = np.zeros_like(X)
    target = Exporter(memory)
    assert negate(X, out=[target])[0] is target
    np.testing.assert_array_equal(memory, -X)
    bound = negate.bind([Exporter(X)], [Exporter(memory)])
    memory[:] = 0
    np.testing.assert_array_equal(bound()[0], -X)
    np.testing.assert_array_equal(memory, -X)


def test_why_memory_cannot_be_used_is_said(negate: Any) -> None:
    with pytest.raises(InputTypeError, match=r"IRC6318: input 'x': .*Refusing given cannot be used: it is on another"):
        negate(Refusing(X))
    with pytest.raises(InputTypeError, match="IRC6318: output 'y'"):
        negate(X, out=[Refusing(X)])
    fixed = X.copy()
    fixed.flags.writeable = False
    with pytest.raises(RunError, match=r"IRC6318: output 'y'|IRC6308"):  # as the version of NumPy has it
        negate(X, out=[Exporter(fixed)])
    with pytest.raises(InputTypeError, match="IRC6303"):
        negate(X, out=[[1.0]])


def test_torch_tensors_are_arguments_and_results(negate: Any) -> None:
    torch = pytest.importorskip("torch")
    x = torch.from_numpy(X.copy())
    for given in (x, x.clone().requires_grad_(), x.t().contiguous().t()):
        np.testing.assert_array_equal(negate(given)[0], -X)
    target = torch.zeros(2, 3)
    assert negate(x, out=[target])[0] is target
    assert torch.equal(target, -x)
    with pytest.raises(InputTypeError, match=r"it requires grad, .* tensor.detach"):
        negate(x, out=[torch.zeros(2, 3, requires_grad=True)])
    with pytest.raises(InputValueError, match="IRC6307"):
        negate(x, out=[torch.zeros(3, 2).t()])
    with pytest.raises(InputTypeError, match=r"on the device meta, .* tensor.cpu"):
        negate(torch.zeros(2, 3, device="meta"))
    with pytest.raises(InputTypeError, match=r"tensor.to_dense"):
        negate(x.to_sparse())
    with pytest.raises(InputTypeError, match="IRC6303"):
        negate(x.double())


def test_torch_bf16_is_that_of_ml_dtypes() -> None:
    torch = pytest.importorskip("torch")
    negate = negation("bf16")
    x, target = torch.from_numpy(X.copy()).bfloat16(), torch.zeros(2, 3, dtype=torch.bfloat16)
    assert negate(x)[0].dtype == ml_dtypes.bfloat16
    negate(x, out=[target])
    assert torch.equal(target, -x)
