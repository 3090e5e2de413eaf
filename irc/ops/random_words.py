"""Random words of 32 bits: Philox, which computes them from their numbers, and the Mersenne Twister, one after another.

Sources: Salmon, Moraes, Dror and Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011 (Philox4x32-10);
Matsumoto and Nishimura, "Mersenne Twister: A 623-Dimensionally Equidistributed Uniform Pseudo-Random Number Generator",
ACM TOMACS 8 (1998) (MT19937, with the seeding of the version of 2002).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from irc.diagnostics import require
from irc.diagnostics.codes import shape as codes
from irc.expr import Bin, Const, Expr, Tensor, Var, index, select
from irc.ir.dim import Dim, product
from irc.ir.graph import Value
from irc.ir.relation import at_most, same
from irc.ir.types import TensorType, i64, u32, u64
from irc.opdef.base import Array, Op, op
from irc.opdef.builder import Builder
from irc.opdef.conversions import as_i64
from irc.opdef.signature import Sig
from irc.opdef.typesets import INDEX

if TYPE_CHECKING:
    from irc.loops.builder import LoopBuilder

WORD = 0xFFFFFFFF
MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
WEYL = 0x9E3779B9, 0xBB67AE85
ROUNDS = 10
STATE, AHEAD = 624, 397
"""Words of the Mersenne Twister's state, and how far ahead stands the word that a new one is made of."""


def count_of(op: str, shape: Value, each: int) -> TensorType:
    """The type of a vector with `each` words for each element of a tensor of this shape."""
    dims = shape.dims()
    if dims is None:
        return TensorType(u32, (Dim.fresh("random"),))
    for size in dims:
        require(at_most(0, size), codes.SIZE_RANGE, op=op, what="a size", value=size, expected="0 or more")
    return TensorType(u32, (product(dims) * each,))


def counted(b: Builder, out: TensorType, shape: Value, each: int) -> Iterable[tuple[Dim, Value]]:
    """Compute the length of that vector; a negative size gives none."""
    sizes = b.Max(as_i64(b, shape), b.const(0))
    yield out.dims()[0], b.Mul(b.ReduceProd(sizes, [0], keepdims=True), b.const([each]))


@op
class PhiloxWords(Op):
    """`each` words for every element of a tensor of that shape: blocks 0, 1, … of four words of Philox4x32-10.

    The counter of block n is n and above it (64 bits each) `stream`, plus `draw` if there is one; `key` is the key.
    What random operations are compiled to.
    """

    key: int
    stream: int = 0
    each: int = 1
    draws = True
    sig = Sig("shape: I[1], draw?: i64[one] -> y: u32", I=INDEX)

    def infer(self, shape: Value, draw: Value | None = None) -> TensorType:
        return count_of(self.name, shape, self.each)

    def run_sizes(
        self, b: Builder, out: TensorType, shape: Value, draw: Value | None = None
    ) -> Iterable[tuple[Dim, Value]]:
        return counted(b, out, shape, self.each)

    def reference(self, shape: Array, draw: Array | None = None) -> Array:
        count = self.each * int(np.prod(np.asarray(shape), dtype=np.int64))
        blocks = np.arange((count + 3) // 4, dtype=np.uint64)
        stream = (self.stream + (0 if draw is None else int(np.asarray(draw).reshape(())))) % 2**64
        word, half = np.uint64(0xFFFFFFFF), np.uint64(32)
        x = [blocks & word, blocks >> half, np.full_like(blocks, stream) & word, np.full_like(blocks, stream) >> half]
        keys = [self.key & 0xFFFFFFFF, self.key >> 32]
        for _ in range(10):
            p, q = x[0] * np.uint64(0xD2511F53), x[2] * np.uint64(0xCD9E8D57)
            x = [(q >> half) ^ x[1] ^ np.uint64(keys[0]), q & word, (p >> half) ^ x[3] ^ np.uint64(keys[1]), p & word]
            keys = [(keys[0] + 0x9E3779B9) & 0xFFFFFFFF, (keys[1] + 0xBB67AE85) & 0xFFFFFFFF]
        return np.stack(x, axis=1).astype(np.uint32).reshape(-1)[:count]

    def loops(self, b: LoopBuilder, shape: Tensor, draw: Tensor | None, y: Tensor) -> None:
        """Four words at a time, in u64, so that products have all their bits."""
        count = index(y.shape[0])
        stream: Expr = Const(self.stream, u64)
        if draw is not None:
            stream = stream + draw[(0,) * draw.rank].cast(u64)
        with b.for_((count + 3) // 4, "parallel") as block:
            n, above = b.let(block.cast(u64), "n"), b.let(stream, "above")
            x = [low(n), high(n), low(above), high(above)]
            keys = [self.key & WORD, self.key >> 32]
            for _ in range(ROUNDS):
                p, q = b.let(x[0] * MULTIPLIERS[0], "p"), b.let(x[2] * MULTIPLIERS[1], "q")
                x = [xor(high(q), x[1], keys[0]), low(q), xor(high(p), x[3], keys[1]), low(p)]
                x[0], x[2] = b.let(x[0], "a"), b.let(x[2], "c")
                keys = [(k + w) & WORD for k, w in zip(keys, WEYL, strict=True)]
            for lane, word in enumerate(x):
                at = b.let(block * 4 + lane, "at")
                with b.if_(at.lt(count)):
                    b.store(y, (at,), word.cast(u32))


def low(x: Expr) -> Expr:
    return Bin("bitand", x, Const(WORD, x.dtype))


def high(x: Expr) -> Expr:
    return shifted(x, 32)


def shifted(x: Expr, bits: int) -> Expr:
    return Bin("shr", x, Const(bits, x.dtype))


def xor(x: Expr, y: Expr, key: int) -> Expr:
    return Bin("bitxor", Bin("bitxor", x, y), Const(key, x.dtype))


def seeded_state(seed: int) -> np.ndarray:
    """Make the state of a Mersenne Twister of one seed of 32 bits."""
    state = np.random.RandomState(seed % 2**32).get_state(legacy=False)
    return np.asarray(state["state"]["key"], np.uint32)


def sequence_state(seeds: Sequence[int]) -> np.ndarray:
    """Make the state of a Mersenne Twister of several seeds of 32 bits: as `std::seed_seq` does for `std::mt19937`.

    Source: ISO C++, [rand.util.seedseq] and [rand.eng.mers].
    """
    near, far, count = (STATE - 11) // 2, (STATE + 11) // 2, max(len(seeds) + 1, STATE)
    words = [0x8B8B8B8B] * STATE
    for k in range(count):
        here, one, other = k % STATE, (k + near) % STATE, (k + far) % STATE
        mixed = words[here] ^ words[one] ^ words[(k - 1) % STATE]
        first = 1664525 * (mixed ^ mixed >> 27) & WORD
        seed = len(seeds) if k == 0 else here + seeds[k - 1] if k <= len(seeds) else here
        second = first + seed & WORD
        words[one], words[other], words[here] = words[one] + first & WORD, words[other] + second & WORD, second
    for k in range(count, count + STATE):
        here, one, other = k % STATE, (k + near) % STATE, (k + far) % STATE
        mixed = words[here] + words[one] + words[(k - 1) % STATE] & WORD
        first = 1566083941 * (mixed ^ mixed >> 27) & WORD
        second = first - here & WORD
        words[one], words[other], words[here] = words[one] ^ first, words[other] ^ second, second
    return np.array(words, np.uint32)


@op
class MersenneWords(Op):
    """`each` words for every element of a tensor of that shape, in their order: MT19937, from this state on.

    What random operations of other generators than Philox are compiled to.
    """

    each: int = 1
    draws = True
    sig = Sig("shape: I[1], state: u32[1] -> y: u32", I=INDEX)

    def infer(self, shape: Value, state: Value) -> TensorType:
        facts = {
            "op": self.name,
            "what": "number of words of the state",
            "value": state.shape[0],
            "expected": str(STATE),
        }
        require(same(state.shape[0], STATE), codes.SIZE_RANGE, **facts)
        return count_of(self.name, shape, self.each)

    def run_sizes(self, b: Builder, out: TensorType, shape: Value, state: Value) -> Iterable[tuple[Dim, Value]]:
        return counted(b, out, shape, self.each)

    def reference(self, shape: Array, state: Array) -> Array:
        count = self.each * int(np.prod(np.asarray(shape), dtype=np.int64))
        random = np.random.RandomState()
        random.set_state(("MT19937", np.asarray(state, np.uint32), STATE, 0, 0.0))
        return random.randint(0, 2**32, count, np.uint32)

    def loops(self, b: LoopBuilder, shape: Tensor, state: Tensor, y: Tensor) -> None:
        """The state is made anew, in place, behind each of its words that has been given out."""
        s = b.alloc(u32, (STATE,), "state")
        with b.for_(STATE) as i:
            b.store(s, (i,), state[i])
        at = b.var(Const(0, i64), "at")
        with b.for_(y.shape[0]) as k:
            following = b.let(select(at.eq(STATE - 1), Const(0, i64), at + 1), "following")
            ahead = b.let(select((at + AHEAD).lt(STATE), at + AHEAD, at + (AHEAD - STATE)), "ahead")
            upper = Bin("bitand", s[at], Const(0x80000000, u32))
            joined = b.let(Bin("bitor", upper, Bin("bitand", s[following], Const(0x7FFFFFFF, u32))), "joined")
            odd = Bin("bitand", joined, Const(1, u32)) * 0x9908B0DF
            word = b.let(Bin("bitxor", Bin("bitxor", s[ahead], shifted(joined, 1)), odd), "word")
            b.store(s, (at,), word)
            b.store(y, (k,), self._tempered(b, word))
            b.assign(at, following)

    @staticmethod
    def _tempered(b: LoopBuilder, word: Var) -> Expr:
        x: Expr = word
        for bits, left, mask in ((11, False, WORD), (7, True, 0x9D2C5680), (15, True, 0xEFC60000), (18, False, WORD)):
            moved = Bin("shl" if left else "shr", x, Const(bits, u32))
            x = b.let(Bin("bitxor", x, Bin("bitand", moved, Const(mask, u32))), "tempered")
        return x
