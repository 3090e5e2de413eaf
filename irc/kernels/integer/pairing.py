"""Choice of the fours of bytes that are multiplied two by two: those whose sums fit into words together.

The fours of a panel are matched greedily, from the one of the largest sum on, each with the one that makes the largest
of both sums the least.  That is done in chunks of fours of all sizes, so that the time grows with their number only.
"""

from __future__ import annotations

import numpy as np

from irc.kernels.core.base import Array

CHUNK = 32
"""Fours among which partners are looked for."""
SLICE = 64
"""Chunks that are matched together: so many that their sums stay in the caches."""


def partners(sums: Array, most: int) -> Array:
    """Match sums[panel, four, lane], 0 to 256: [panel, pair, 2], the smaller of each pair first.

    Fours with a sum above `most` hardly ever fit by themselves, and have each other as partners.  Of an odd number, the
    four of the largest sum is left alone.
    """
    panels, fours = int(sums.shape[0]), int(sums.shape[1])
    half = fours // 2
    if not half or not panels:
        return np.zeros((panels, half, 2), np.int64)
    largest = sums.max(2)
    order = np.argsort(-largest, axis=1, kind="stable")[:, fours % 2 :]
    chunks = -(-2 * half // CHUNK)
    size = 2 * -(-half // chunks)
    member: Array = np.arange(size)
    place: Array = np.arange(chunks)[:, None] * 2 + member // 2 * 2 * chunks + member % 2
    there: Array = place < 2 * half
    members = order[:, np.where(there, place, 0)].reshape(-1, size)
    alive = np.broadcast_to(there, (panels, chunks, size)).reshape(-1, size)
    halves = np.minimum((sums + 1) // 2, 127).astype(np.uint8)  # of which two add up to a byte
    of_member: Array = np.repeat(np.arange(panels), chunks)
    pairs: Array = np.empty((panels * chunks, size // 2, 2), np.int64)
    for at in range(0, len(members), SLICE):
        part = slice(at, at + SLICE)
        chosen = halves[of_member[part, None], members[part]].transpose(2, 0, 1)
        beyond = largest[of_member[part, None], members[part]] > most
        found = _matched(np.ascontiguousarray(chosen), alive[part], beyond)
        pairs[part] = np.take_along_axis(members[part, None], found, 2)
    whole: Array = there[:, ::2].reshape(-1)
    return pairs.reshape(panels, -1, 2)[:, whole]


def _matched(halves: Array, alive: Array, beyond: Array) -> Array:
    """Match halves[lane, chunk, member], the largest members first, of those alive: [chunk, pair, 2].

    beyond: those whose partner is the next largest one.
    """
    chunks, size = int(halves.shape[1]), int(halves.shape[2])
    rows: Array = np.arange(chunks)
    alive = alive.copy()
    found: Array = np.zeros((chunks, size // 2, 2), np.int64)
    for k in range(size // 2):
        heavy = alive.argmax(1)
        alive[rows, heavy] = False
        most: Array = (halves + halves[:, rows, heavy][:, :, None]).max(0)
        following, least = alive.argmax(1), np.where(alive, most, 255).argmin(1)
        light = np.choose(beyond[rows, heavy], [least, following])
        alive[rows, light] = False
        found[:, k, 0], found[:, k, 1] = light, heavy
    return found
