/* Thread pool for models compiled by irc.
 *
 * A compiled model runs on the calling thread alone unless it is given an irc_pool.  This is one
 * implementation; any struct with the same two members will do.
 */
#ifndef IRC_RT_H
#define IRC_RT_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef IRC_POOL_DEFINED
#define IRC_POOL_DEFINED
/* Threads of the caller.  parallel_for calls fn(arg, begin, end) on parts that cover [0, n), and returns when
 * all are done.  Pass NULL for a pool to run everything on the calling thread. */
typedef struct irc_pool {
    void *self;
    void (*parallel_for)(void *self, int64_t n, void (*fn)(void *arg, int64_t begin, int64_t end), void *arg);
} irc_pool;
#endif

#if defined(__GNUC__)
#define IRC_RT_PUBLIC __attribute__((visibility("default")))
#else
#define IRC_RT_PUBLIC
#endif

/* A pool that computes with `threads` threads: the caller and threads - 1 others, which start here and stay.
 * NULL when memory or threads run out.  parallel_for divides [0, n) into `threads` equal shares, in order, one for
 * each thread, so that a thread meets the same data again, and each share into pieces.  A thread takes half of what
 * is left of its own share, then half of that, and when there is no more, pieces of the others' from their ends: only
 * what a thread has begun is waited for, not a thread that sleeps or shares its processor.  Who computes what depends
 * on time, so results must not depend on how [0, n) is cut.  Idle threads spin for at most 20 microseconds and then
 * sleep.  A call while the pool is busy (from another thread, or from inside a part) and a call in a forked child run
 * on the calling thread. */
IRC_RT_PUBLIC irc_pool *irc_rt_create(int threads);

/* The number of threads the pool was created with. */
IRC_RT_PUBLIC int irc_rt_threads(const irc_pool *pool);

/* 1 if this process was forked from the one that made the pool: its threads did not come along. */
IRC_RT_PUBLIC int irc_rt_forked(const irc_pool *pool);

/* Ends the threads and frees the pool; no call may be running.  NULL is allowed. */
IRC_RT_PUBLIC void irc_rt_destroy(irc_pool *pool);

#ifdef __cplusplus
}
#endif
#endif
