"""Shared libraries for another machine's processor: `guest/guest.c` runs in its emulator and calls their functions.

With `$IRC_TEST_TARGET` of another machine (see `conftest`) kernels, programs and compiled models of the tests run so.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import struct
import subprocess
import tempfile
import weakref
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from irc.kernels.core.invocation import argument_struct
from irc.kernels.core.workspace import MOST as MOST_PARTS, aligned as aligned_size
from irc.runtime.native import NativeEngine
from irc.toolchain import processor

Array = np.ndarray[Any, Any]
ALLOCATE, RELEASE, WRITE, READ, CALL, POOL = range(6)
MOST = 64  # arguments of a function
UNTOUCHED = 0xCD
COMPILERS = {"aarch64": ("aarch64-linux-gnu-gcc",)}
EMULATORS = {"aarch64": ("qemu-aarch64", "-L", "/usr/aarch64-linux-gnu")}
"""Machines that others can stand for: with Debian's packages gcc-aarch64-linux-gnu and qemu-user."""


def machine_of(target: str) -> str:
    """The machine of a target, if it is one of those and not this one; else empty."""
    return target if target in EMULATORS and target != processor.machine() else ""


def machine() -> str:
    """The other machine whose code is tested; empty where it is this machine's own."""
    return os.environ.get("IRC_TEST_MACHINE", "")


def emulator() -> list[str]:
    """What a program's command begins with on the machine that is tested."""
    return list(EMULATORS[machine()]) if machine() else []


@cache
def _guest(command: str) -> str:
    """The program that calls functions, built by the compiler for the other machine."""
    folder = tempfile.mkdtemp(prefix="irc-guest-")
    source = Path(__file__).resolve().parent / "guest" / "guest.c"
    flags = ["-std=c11", "-O1", "-Wall", "-Wextra", "-Werror"]
    subprocess.run([command, *flags, str(source), "-ldl", "-o", f"{folder}/guest"], check=True, timeout=120)
    weakref.finalize(_guest, shutil.rmtree, folder, ignore_errors=True)
    return f"{folder}/guest"


class Guest:
    """A shared library, loaded by a process of its own."""

    def __init__(self, library: Path) -> None:
        command = [*emulator(), _guest("gcc"), str(library.resolve())]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        weakref.finalize(self, _end, self._process)

    def __getattr__(self, name: str) -> Any:
        pytest.skip(f"calls {name} in its own process, which is of another machine")

    def _ask(self, *numbers: int, data: bytes = b"") -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(struct.pack(f"={len(numbers)}q", *numbers) + data)
        self._process.stdin.flush()

    def _answer(self, size: int) -> bytes:
        assert self._process.stdout is not None
        found = self._process.stdout.read(size)
        assert len(found) == size, f"the emulated process ended with {self._process.wait()}"
        return found

    def _number(self) -> int:
        return int(struct.unpack("=q", self._answer(8))[0])

    def allocate(self, size: int) -> int:
        """The address of that many bytes, a multiple of 64."""
        self._ask(ALLOCATE, size)
        return self._number()

    def release(self, *addresses: int) -> None:
        for address in addresses:
            self._ask(RELEASE, address)

    def write(self, address: int, data: bytes) -> None:
        self._ask(WRITE, address, len(data), data=data)

    def read(self, address: int, size: int) -> bytes:
        self._ask(READ, address, size)
        return self._answer(size)

    def pool(self, piece: int) -> int:
        """The address of a pool that runs pieces of that many iterations, the last first."""
        self._ask(POOL, piece)
        return self._number()

    def calls_of(self, pool: int) -> int:
        """How often a pool was asked."""
        return int(struct.unpack("=q", self.read(pool + 16, 8))[0])

    def call(self, name: str, *arguments: int) -> int:
        """The result of a function of numbers and addresses."""
        assert len(arguments) <= MOST
        numbers = [*arguments, *[0] * (MOST - len(arguments))]
        self._ask(CALL, len(name), data=name.encode() + struct.pack(f"={MOST}q", *numbers))
        return self._number()

    def place(self, data: bytes) -> int:
        """The address of a copy."""
        address = self.allocate(len(data))
        self.write(address, data)
        return address


def _end(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.close()
    process.stdout.close()
    process.wait(60)


def open_library(path: Path) -> Any:
    """A shared library for the machine that is tested: `ctypes.CDLL` or `Guest`."""
    return Guest(path) if machine() else ctypes.CDLL(str(path))


def call(library: Any, name: str, *arguments: Any) -> None:
    """Call a function without a result: with arrays, whole numbers, and pools (`test_kernels.Pool`, or None)."""
    if isinstance(library, Guest):
        _call_there(library, name, arguments)
        return
    function = library[name]
    function.restype = None
    function(*map(_argument, arguments))


def call_kernel(library: Any, kernel: Any, pool: Any, *arguments: Any) -> None:
    """Call a kernel with the values of its pointers and sizes, arrays and whole numbers, and a pool or None.

    Memory for its parts is made here, as much as these sizes need, with nothing behind it that is used.
    """
    own = workspaces(kernel, arguments)
    arguments = (*arguments, *own)
    assert len(arguments) == len(kernel.arguments)
    if isinstance(library, Guest):
        _call_there(library, kernel.symbol, (pool, *arguments), of_kernel=True)
        return
    values = [a.ctypes.data if isinstance(a, np.ndarray) else int(a) for a in arguments]
    function = library[kernel.symbol]
    function.restype = None
    function(_argument(pool), ctypes.byref(argument_struct(kernel, values)))
    if own and (pool is None or hasattr(pool, "chunk")):  # pieces run one after the other, all in the first
        assert (own[0][own[1] :] == UNTOUCHED).all(), f"{kernel.symbol} needs more than it says"


def workspaces(kernel: Any, arguments: Sequence[Any]) -> list[Any]:
    """Make the last arguments of a kernel whose parts need memory of their own."""
    if not kernel.has_workspaces:
        return []
    sizes = dict(zip(kernel.sizes, map(int, arguments[len(kernel.pointers) :]), strict=True))
    each = aligned_size(kernel.own_bytes(sizes))
    raw = np.full(each * MOST_PARTS + 128, UNTOUCHED, np.uint8)
    at = -raw.ctypes.data % 64
    return [raw[at : at + each * MOST_PARTS], each, MOST_PARTS]


def _argument(a: Any) -> Any:
    if isinstance(a, np.ndarray):
        return ctypes.c_void_p(a.ctypes.data)
    return a and ctypes.byref(a) if a is None or isinstance(a, ctypes.Structure) else ctypes.c_int64(int(a))


def _call_there(guest: Guest, name: str, arguments: Sequence[Any], of_kernel: bool = False) -> None:
    """Whole memory of every array goes there, at the same place in a line of 64 bytes, and comes back.

    of_kernel: all arguments but the first stand in a struct.
    """
    there: dict[int, tuple[int, int, Array]] = {}  # where memory starts here -> block, address, array
    pools: list[tuple[Any, int]] = []
    numbers: list[int] = []
    for a in arguments:
        if isinstance(a, ctypes.Structure):
            pools.append((a, guest.pool(a.chunk)))
        if not isinstance(a, np.ndarray):
            numbers.append(pools[-1][1] if isinstance(a, ctypes.Structure) else int(a or 0))
            continue
        whole = a
        while isinstance(whole.base, np.ndarray):
            whole = whole.base
        low, high = np.lib.array_utils.byte_bounds(whole)
        if low not in there:
            block = guest.allocate(high - low + 64)
            there[low] = block, block + low % 64, whole
            guest.write(block + low % 64, ctypes.string_at(low, high - low))
        numbers.append(there[low][1] + a.ctypes.data - low)
    if of_kernel:
        block = guest.place(struct.pack(f"={len(numbers) - 1}q", *numbers[1:]))
        guest.call(name, numbers[0], block)
        guest.release(block)
    else:
        guest.call(name, *numbers)
    for low, (block, address, whole) in there.items():
        if whole.flags.writeable:
            ctypes.memmove(low, guest.read(address, whole.nbytes), whole.nbytes)
        guest.release(block)
    for pool, address in pools:
        pool.calls += guest.calls_of(address)
        guest.release(address)


def pool_of(guest: Guest, pool: Any) -> int:
    """The pool of a guest that stands for `byref` of a `test_kernels.Pool`."""
    if pool is None:
        return 0
    if not hasattr(pool, "_obj"):
        pytest.skip("takes a pool of its own process")
    return guest.pool(pool._obj.chunk)


class Context:
    """A model's context in a guest: what `P_*` of its C interface need and say."""

    def __init__(self, guest: Guest, prefix: str, weights: bytes, pool: int = 0) -> None:
        self.guest, self.prefix, self.pool = guest, prefix, pool
        self._weights = guest.place(weights) if weights else 0
        self._address, self._size = 0, 0

    def _call(self, name: str, *arguments: int) -> int:
        """What a function returns, as an int."""
        return ctypes.c_int(self.guest.call(f"{self.prefix}_{name}", *arguments)).value

    def plan(self, dims: Sequence[int], most: Sequence[int] = ()) -> int:
        """A context for these sizes, in memory for the sizes `most`; the status.  State survives."""
        sizes = self.guest.place(struct.pack(f"={len(dims)}q", *dims)) if dims else 0
        largest = self.guest.place(struct.pack(f"={len(most)}q", *most)) if most else sizes
        needed = self.guest.call(f"{self.prefix}_context_size", largest)
        status = self._grow(needed or (1 << 16)) if needed > self._size or not self._size else 0
        if not status and dims:
            status = self._call("plan", self._address, sizes)
        return status

    def _grow(self, size: int) -> int:
        before, old = self._size, self._address
        self._size, self._address = size, self.guest.allocate(size)
        if not before:
            return self._call("init", self._address, self._weights, self.pool)
        self.guest.write(self._address, self.guest.read(old, before))
        self.guest.release(old)
        return 0

    def reset(self) -> None:
        self.guest.call(f"{self.prefix}_reset", self._address)

    def run(self, arrays: Sequence[Array], made: Sequence[Array], sizes: Array | None) -> int:
        """Run on arrays that are contiguous; results are written to `made`, and their sizes.  The status."""
        guest = self.guest
        given = [guest.place(a.tobytes()) for a in arrays]
        taken = [guest.allocate(a.nbytes) for a in made]
        lists = [guest.place(struct.pack(f"={len(x) or 1}q", *(x or [0]))) for x in (given, taken)]
        where = 0 if sizes is None else guest.allocate(sizes.nbytes)
        status = self._call("run", self._address, *lists, where)
        results = [*made] if sizes is None else [*made, sizes]
        for array, address in zip(results, [*taken, where], strict=False):
            array[...] = np.frombuffer(guest.read(address, array.nbytes), array.dtype).reshape(array.shape)
        guest.release(*given, *taken, *lists, *([where] if where else []))
        return status


class GuestEngine(NativeEngine):
    """`NativeEngine` for an artefact of another machine."""

    def _load(self, path: Path, prefix: str) -> None:
        self._guest, self._there = Guest(path), None

    def plan(self, dims: tuple[int, ...]) -> None:
        if dims == self._planned:
            return
        if self._there is None:
            weights = b"" if self._weights is None else self._weights.tobytes()
            self._there = Context(self._guest, self._prefix, weights, self._guest.pool(3) if self.threads > 1 else 0)
        self._check(self._there.plan(dims))
        self._planned = dims

    def reset(self) -> None:
        if self._there is not None:
            self._there.reset()

    def run(self, arrays: Sequence[Array], dims: tuple[int, ...], out: Sequence[Array] | None) -> list[Array]:
        self.plan(dims)
        made = [np.empty(p.shape_for(dims), p.dtype) for p in self.outputs] if out is None else list(out)
        measured = np.zeros(max(sum(self._ranks), 1), np.int64) if self._measured else None
        assert self._there is not None
        self._check(self._there.run(arrays, made, measured))
        return made if measured is None else self._cut(made, measured)
