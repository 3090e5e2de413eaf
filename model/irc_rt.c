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

/* How long a thread spins for a job, and the caller for a piece that somebody else has begun, before they sleep.  Short:
 * spinning uses up what the system grants a thread on a processor that others want too, and keeps a processor from a
 * thread that is held up elsewhere; who sleeps is woken at once. */
#define SPIN_NANOSECONDS 20000
#define PIECES 8                     /* of a share, at most */

typedef struct pool pool;

typedef struct {
    pool *owner;
    int index; /* 1 .. threads - 1; the caller is 0 */
    pthread_t thread;
} worker;

/* What is left of a thread's share of a job: pieces `front` to `back` (16 bits each, the lowest) of job number `job`
 * (the highest 32).  Its own thread takes from the front, others from the back. */
typedef struct {
    atomic_uint_least64_t left;
    char apart[64 - sizeof(atomic_uint_least64_t)]; /* shares of two threads are not in one line of a cache */
} share;

struct pool {
    irc_pool face; /* first: a pool is passed around as its face */
    int threads;
    int generation; /* number of forks before the pool was made */
    worker *workers;
    share *shares;
    pthread_mutex_t busy; /* held during a parallel_for */

    /* The job, published by `epoch`, its number.  It is read only by who has taken a piece of it, and written only when
     * all pieces are finished. */
    void (*fn)(void *arg, int64_t begin, int64_t end);
    void *arg;
    int64_t n;
    atomic_int stop;
    atomic_uint epoch;
    atomic_uint pending; /* pieces that are not finished */

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

static uint64_t packed(unsigned job, unsigned front, unsigned back) {
    return (uint64_t)job << 32 | front << 16 | back;
}

/* Where share k of [0, n) begins: the first n % threads shares are one longer. */
static int64_t share_begin(const pool *p, int k) {
    const int64_t longer = p->n % p->threads;
    return p->n / p->threads * k + (k < longer ? k : longer);
}

/* The pieces of share k. */
static unsigned pieces_of(const pool *p, int k) {
    const int64_t size = share_begin(p, k + 1) - share_begin(p, k);
    return (unsigned)(size < PIECES ? size : PIECES);
}

/* Takes half of what is left of share k of that job, or the last piece, and runs it: whether there was any.  A thread
 * that comes late, when the caller is at a later job, finds another number. */
static int run_pieces(pool *p, int k, unsigned job, int own) {
    atomic_uint_least64_t *const left = &p->shares[k].left;
    uint64_t before = atomic_load(left);
    unsigned first, last;
    do {
        const unsigned front = (unsigned)(before >> 16 & 0xffff), back = (unsigned)(before & 0xffff);
        if ((unsigned)(before >> 32) != job || front >= back) return 0;
        const unsigned many = (back - front + 1) / 2;
        first = own ? front : back - many;
        last = first + many;
        const uint64_t after = own ? packed(job, last, back) : packed(job, front, first);
        if (atomic_compare_exchange_weak(left, &before, after)) break;
    } while (1);
    const int64_t begin = share_begin(p, k), size = share_begin(p, k + 1) - begin, pieces = pieces_of(p, k);
    p->fn(p->arg, begin + size / pieces * first + size % pieces * first / pieces,
          begin + size / pieces * last + size % pieces * last / pieces);
    if (atomic_fetch_sub(&p->pending, last - first) == last - first && atomic_load(&p->caller_sleeps)) {
        pthread_mutex_lock(&p->lock);
        pthread_cond_signal(&p->done);
        pthread_mutex_unlock(&p->lock);
    }
    return 1;
}

/* Runs the thread's own share, then what is left of the others. */
static void run_job(pool *p, int index, unsigned job) {
    for (int k = 0; k < p->threads; ++k) {
        const int at = (index + k) % p->threads;
        while (run_pieces(p, at, job, k == 0)) continue;
    }
}

/* Spins until *x is `value` (equal: 1) or something else (0); whether that came about in time. */
static int spin(atomic_uint *x, unsigned value, int equal) {
    const int64_t limit = nanoseconds() + SPIN_NANOSECONDS;
    do {
        for (int k = 0; k < 64; ++k) {
            if ((atomic_load_explicit(x, memory_order_acquire) == value) == equal) return 1;
            pause_thread();
        }
    } while (nanoseconds() < limit);
    return 0;
}

/* Waits until the epoch is no longer `seen`. */
static void wait_for_job(pool *p, unsigned seen) {
    if (spin(&p->epoch, seen, 0)) return;
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
        run_job(p, w->index, seen);
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
    if (spin(&p->pending, 0, 1)) return;
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
    const unsigned job = atomic_load(&p->epoch) + 1;
    unsigned pieces = 0;
    for (int k = 0; k < p->threads; ++k) pieces += pieces_of(p, k);
    atomic_store(&p->pending, pieces);
    for (int k = 0; k < p->threads; ++k) atomic_store(&p->shares[k].left, packed(job, 0, pieces_of(p, k)));
    publish(p);
    run_job(p, 0, job);
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
    free(p->shares);
    free(p);
}

irc_pool *irc_rt_create(int threads) {
    if (threads < 1) threads = 1;
    pthread_once(&fork_handler, install_fork_handler);
    pool *const p = calloc(1, sizeof *p);
    if (!p) return NULL;
    p->workers = calloc((size_t)threads, sizeof *p->workers);
    p->shares = calloc((size_t)threads, sizeof *p->shares);
    if (!p->workers || !p->shares) {
        free(p->workers);
        free(p->shares);
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
