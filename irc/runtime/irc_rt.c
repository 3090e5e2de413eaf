/* Thread pool for models compiled by irc.  C11 with POSIX threads: cc -std=c11 -O2 -pthread. */
#if !defined(_POSIX_C_SOURCE) && !defined(__APPLE__)
#define _POSIX_C_SOURCE 200809L
#endif
#include "irc_rt.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SPIN_NANOSECONDS 200000

typedef struct pool pool;

typedef struct {
    pool *owner;
    int index;         /* 1 .. threads - 1; the caller is 0 */
    atomic_uint taken; /* the latest job of which somebody has begun this worker's part */
    pthread_t thread;
} worker;

struct pool {
    irc_pool face; /* first: a pool is passed around as its face */
    int threads;
    int generation; /* number of forks before the pool was made */
    worker *workers;
    pthread_mutex_t busy; /* held during a parallel_for */

    /* The job, published by `epoch`, its number.  It is read only by who has taken a part of it, and written only when
     * all parts are finished. */
    void (*fn)(void *arg, int64_t begin, int64_t end);
    void *arg;
    int64_t n;
    atomic_int stop;
    atomic_uint epoch;
    atomic_int pending; /* parts of workers that are not finished */

    /* Sleeping, once spinning has taken too long. */
    pthread_mutex_t lock;
    pthread_cond_t wake, done;
    atomic_int sleepers;
    atomic_int caller_sleeps;
};

static atomic_int forks;
static pthread_once_t fork_handler = PTHREAD_ONCE_INIT;

static void count_fork(void) {
    atomic_fetch_add(&forks, 1);
}

static void install_fork_handler(void) {
    pthread_atfork(NULL, NULL, count_fork);
}

static void pause_thread(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static int64_t nanoseconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Part k of [0, n) divided by `threads`: the first n % threads parts are one longer. */
static void run_part(pool *p, int k) {
    const int64_t size = p->n / p->threads, longer = p->n % p->threads;
    const int64_t begin = k * size + (k < longer ? k : longer);
    const int64_t end = begin + size + (k < longer);
    if (begin < end) p->fn(p->arg, begin, end);
}

/* Whether the part of worker w in that job is ours to run: its own thread and the caller both ask.  A thread that comes
 * late, when the caller is at a later job, is refused, because `taken` has moved on. */
static int take(worker *w, unsigned job) {
    unsigned before = job - 1;
    return atomic_compare_exchange_strong(&w->taken, &before, job);
}

/* Waits until the epoch is no longer `seen`. */
static void wait_for_job(pool *p, unsigned seen) {
    const int64_t limit = nanoseconds() + SPIN_NANOSECONDS;
    do {
        for (int k = 0; k < 64; ++k) {
            if (atomic_load_explicit(&p->epoch, memory_order_acquire) != seen) return;
            pause_thread();
        }
    } while (nanoseconds() < limit);
    pthread_mutex_lock(&p->lock);
    atomic_fetch_add(&p->sleepers, 1);
    while (atomic_load(&p->epoch) == seen) pthread_cond_wait(&p->wake, &p->lock);
    atomic_fetch_sub(&p->sleepers, 1);
    pthread_mutex_unlock(&p->lock);
}

static void *work(void *arg) {
    worker *const w = arg;
    pool *const p = w->owner;
    for (unsigned seen = 0;;) {
        wait_for_job(p, seen);
        seen = atomic_load(&p->epoch);
        if (atomic_load(&p->stop)) return NULL;
        if (!take(w, seen)) continue;
        run_part(p, w->index);
        if (atomic_fetch_sub(&p->pending, 1) == 1 && atomic_load(&p->caller_sleeps)) {
            pthread_mutex_lock(&p->lock);
            pthread_cond_signal(&p->done);
            pthread_mutex_unlock(&p->lock);
        }
    }
}

static void publish(pool *p) {
    atomic_fetch_add(&p->epoch, 1);
    if (atomic_load(&p->sleepers)) {
        pthread_mutex_lock(&p->lock);
        pthread_cond_broadcast(&p->wake);
        pthread_mutex_unlock(&p->lock);
    }
}

static void wait_for_workers(pool *p) {
    const int64_t limit = nanoseconds() + SPIN_NANOSECONDS;
    do {
        for (int k = 0; k < 64; ++k) {
            if (!atomic_load_explicit(&p->pending, memory_order_acquire)) return;
            pause_thread();
        }
    } while (nanoseconds() < limit);
    pthread_mutex_lock(&p->lock);
    atomic_store(&p->caller_sleeps, 1);
    while (atomic_load(&p->pending)) pthread_cond_wait(&p->done, &p->lock);
    atomic_store(&p->caller_sleeps, 0);
    pthread_mutex_unlock(&p->lock);
}

static void parallel_for(void *self, int64_t n, void (*fn)(void *arg, int64_t begin, int64_t end), void *arg) {
    pool *const p = self;
    if (n <= 0) return;
    if (n == 1 || p->threads == 1 || p->generation != atomic_load(&forks) || pthread_mutex_trylock(&p->busy)) {
        fn(arg, 0, n);
        return;
    }
    p->fn = fn;
    p->arg = arg;
    p->n = n;
    atomic_store(&p->pending, p->threads - 1);
    publish(p);
    run_part(p, 0);
    const unsigned job = atomic_load(&p->epoch);
    for (int k = 0; k + 1 < p->threads; ++k) { /* threads that sleep, or have to share their processor */
        if (!take(&p->workers[k], job)) continue;
        run_part(p, k + 1);
        atomic_fetch_sub(&p->pending, 1);
    }
    wait_for_workers(p);
    pthread_mutex_unlock(&p->busy);
}

static void end_workers(pool *p, int started) {
    atomic_store(&p->stop, 1);
    publish(p);
    for (int k = 0; k < started; ++k) pthread_join(p->workers[k].thread, NULL);
}

static void release(pool *p) {
    pthread_cond_destroy(&p->done);
    pthread_cond_destroy(&p->wake);
    pthread_mutex_destroy(&p->lock);
    pthread_mutex_destroy(&p->busy);
    free(p->workers);
    free(p);
}

irc_pool *irc_rt_create(int threads) {
    if (threads < 1) threads = 1;
    pthread_once(&fork_handler, install_fork_handler);
    pool *const p = calloc(1, sizeof *p);
    if (!p) return NULL;
    p->workers = calloc((size_t)threads, sizeof *p->workers);
    if (!p->workers) {
        free(p);
        return NULL;
    }
    p->face.self = p;
    p->face.parallel_for = parallel_for;
    p->threads = threads;
    p->generation = atomic_load(&forks);
    pthread_mutex_init(&p->busy, NULL);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->wake, NULL);
    pthread_cond_init(&p->done, NULL);
    for (int k = 0; k + 1 < threads; ++k) {
        p->workers[k].owner = p;
        p->workers[k].index = k + 1;
        if (pthread_create(&p->workers[k].thread, NULL, work, &p->workers[k])) {
            end_workers(p, k);
            release(p);
            return NULL;
        }
    }
    return &p->face;
}

int irc_rt_threads(const irc_pool *face) {
    return ((const pool *)face->self)->threads;
}

int irc_rt_forked(const irc_pool *face) {
    return ((const pool *)face->self)->generation != atomic_load(&forks);
}

void irc_rt_destroy(irc_pool *face) {
    if (!face) return;
    pool *const p = face->self;
    if (irc_rt_forked(face)) {
        return; /* the threads and their locks belong to the parent; what is left is a copy of its memory */
    }
    end_workers(p, p->threads - 1);
    release(p);
}
