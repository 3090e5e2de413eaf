"""Memory that parts of a call need for themselves, beside each other, while threads run them: pieces of the arena.

What does not fit a small stack, packed operands say, is in a workspace. A call has as many as parts of it may run at
the same time, each of so many bytes; a part takes the one that its thread had before, or the first that is free, so
that few threads use few of them, which are in their caches.  Where a part begins with what the one before has left
there, a workspace says in its first eight bytes what that is: -1 when it is taken for the first time in a call.
"""

from __future__ import annotations

from irc.kernels.core.text import fill, piece

ALIGNMENT = 64
MOST = 16
"""Parts of a call that run at the same time, at most."""
UNKNOWN = 1 << 40
"""Stands for a size that is not known before a run, which limits no workspace."""
FRAME = 4096
"""Bytes that a function may have on the stack."""
FIELDS = (("own", "char *"), ("own_bytes", "int64_t "), ("owners", "int64_t "))
"""Arguments of a kernel with workspaces: where they are, the bytes of each, and how many there are."""

_CODE = """\
/* Tasks in pieces, as many as there are workspaces, each in one that is free. */
typedef struct {
    void (*run)(void *given, char *own, int64_t begin, int64_t end);
    void *given;
    char *own;
    int64_t own_bytes, owners, tasks, pieces;
    uint32_t taken; /* workspaces, a bit each; in the upper half those that have been before */
} irc_division;

static inline void irc_empty(char *own, int64_t own_bytes) {
    if (own_bytes > 0) *(int64_t *)own = -1;
}

static _Thread_local uint32_t irc_last_own; /* what this thread had is in its caches */

static void irc_run_piece(void *given, int64_t begin, int64_t end) {
    irc_division *const d = given;
    uint32_t taken, mine;
    do { /* one is free: no more pieces run than there are workspaces */
        taken = __atomic_load_n(&d->taken, __ATOMIC_RELAXED);
        mine = irc_last_own >> d->owners ? 0 : irc_last_own & ~taken;
        if (!mine) mine = ~taken & (taken + 1);
    } while (!mine || !__atomic_compare_exchange_n(&d->taken, &taken, taken | mine | mine << $MOST, 1,
                                                   __ATOMIC_ACQUIRE, __ATOMIC_RELAXED));
    irc_last_own = mine;
    char *const own = d->own + __builtin_ctz(mine) * d->own_bytes;
    if (!(taken >> $MOST & mine)) irc_empty(own, d->own_bytes);
    d->run(d->given, own, d->tasks * begin / d->pieces, d->tasks * end / d->pieces);
    __atomic_fetch_and(&d->taken, ~mine, __ATOMIC_RELEASE);
}

/* Runs all tasks, divided among the threads of the pool. */
static inline void irc_divide(const irc_pool *pool, int64_t tasks,
                              void (*run)(void *given, char *own, int64_t begin, int64_t end), void *given,
                              char *own, int64_t own_bytes, int64_t owners) {
    const int64_t pieces = tasks < owners ? tasks : owners;
    irc_division all = {run, given, own, own_bytes, owners, tasks, pieces, 0};
    if (!pool || pieces < 2) {
        irc_empty(own, own_bytes);
        run(given, own, 0, tasks);
    } else {
        pool->parallel_for(pool->self, pieces, irc_run_piece, &all);
    }
}
"""

CODE = fill(_CODE, MOST=MOST)
DIVIDE = piece("IRC_DIVIDE", CODE, "irc_divide")
"""The piece of kernels with workspaces; needs the type irc_pool."""


def aligned(size: int) -> int:
    """Round bytes of a workspace up, so that each begins at a line of the cache."""
    return -(-size // ALIGNMENT) * ALIGNMENT
