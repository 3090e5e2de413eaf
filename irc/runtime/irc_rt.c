/* Thread pool for models compiled by irc.  C11 with POSIX threads: cc -std=c11 -O2 -pthread. */
#if defined(__linux__) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE /* sched_getcpu and the sets of processors */
#endif
#if !defined(_POSIX_C_SOURCE) && !defined(__APPLE__)
#define _POSIX_C_SOURCE 200809L
#endif
#include "irc_rt.h"

#include <pthread.h>
#ifdef __linux__
#include <sched.h>
#endif
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* How long a thread spins for a job, and the caller for a piece that somebody else has begun, before they sleep.  Short:
 * spinning uses up what the system grants a thread on a processor that others want too, and keeps a processor from a
 * thread that is held up elsewhere; who sleeps is woken at once.  But that takes tens of microseconds, so a thread whose
 * last sleep was shorter than LONGEST_SPIN spins as long, as between the runs of a small model, and so does the caller
 * for pieces, unless more than a HELD_UPth of its time went to others lately, in RECENT nanoseconds. */
#define SPIN_NANOSECONDS 20000
#define LONGEST_SPIN 100000
#define HELD_UP 32
#define RECENT 50000000
#define PIECES 16 /* of a share, at most */
#define LINE 64   /* bytes of a line of a cache */

typedef struct pool pool;

typedef struct {
    pool *owner;
    int index; /* 1 .. threads - 1; the caller is 0 */
    pthread_t thread;
    int64_t spin;           /* nanoseconds */
    int64_t woken, had;     /* when it last woke, and the processor's time that it had had, in nanoseconds */
    int64_t awake, held_up; /* of the time awake, lately, how long others had its processor */
} worker;

/* A thread's share of a job: iterations `begin` to `begin + size`, in `pieces`.  In `left`, pieces `front` to `back` (16
 * bits each, the lowest) of job number `job` (the highest 32) are what nobody has begun.  Its own thread takes from the
 * front, others from the back.  The other fields are read only by who has taken a piece, and written only when all are
 * finished.  A line of a cache each, in which a thread that waits for a job finds all it needs. */
typedef struct {
    _Alignas(LINE) atomic_uint_least64_t left;
    void (*fn)(void *arg, int64_t begin, int64_t end);
    void *arg;
    int64_t begin, size;
    unsigned pieces;
} share;

/* What different threads write is in different lines: a line that another thread has written takes as long to come as
 * tens of additions. */
struct pool {
    irc_pool face; /* first: a pool is passed around as its face */
    int threads;
    int generation; /* number of forks before the pool was made */
    worker *workers;
    share *shares;
    atomic_int stop;

    _Alignas(LINE) pthread_mutex_t busy; /* held during a parallel_for */
    unsigned job;                        /* the number of the last; read by who holds it */
    int64_t brief_until;                 /* by nanoseconds(): until then the caller spins briefly; the same */

    _Alignas(LINE) atomic_uint pending; /* pieces that are not finished */

    /* Sleeping, once spinning has taken too long. */
    _Alignas(LINE) pthread_mutex_t lock;
    pthread_cond_t wake, done;
    atomic_int sleepers;
    atomic_int caller_sleeps;
    atomic_int caller_at; /* the processor on which the caller was when it last woke sleepers */
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

static int64_t nanoseconds_of(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int64_t nanoseconds(void) {
    return nanoseconds_of(CLOCK_MONOTONIC);
}

static uint64_t packed(unsigned job, unsigned front, unsigned back) {
    return (uint64_t)job << 32 | front << 16 | back;
}

static unsigned job_of(uint64_t left) {
    return (unsigned)(left >> 32);
}

/* Takes three quarters of what is left of a thread's own share of that job, half of another's, or the last piece, and
 * runs it: how many pieces that were.  What kernels do once for a call, as packing, costs again for each that is taken.
 * A thread that comes late, when the caller is at a later job, finds another number. */
static unsigned run_pieces(share *s, unsigned job, int own) {
    uint64_t before = atomic_load(&s->left);
    unsigned first, last;
    do {
        const unsigned front = (unsigned)(before >> 16 & 0xffff), back = (unsigned)(before & 0xffff);
        if (job_of(before) != job || front >= back) return 0;
        const unsigned all = back - front, many = own ? (3 * all + 3) / 4 : (all + 1) / 2;
        first = own ? front : back - many;
        last = first + many;
        const uint64_t after = own ? packed(job, last, back) : packed(job, front, first);
        if (atomic_compare_exchange_weak(&s->left, &before, after)) break;
    } while (1);
    const int64_t each = s->size / s->pieces, rest = s->size % s->pieces;
    s->fn(s->arg, s->begin + each * first + rest * first / s->pieces,
          s->begin + each * last + rest * last / s->pieces);
    return last - first;
}

static void finish(pool *p, unsigned pieces) {
    if (pieces && atomic_fetch_sub(&p->pending, pieces) == pieces && atomic_load(&p->caller_sleeps)) {
        pthread_mutex_lock(&p->lock);
        pthread_cond_signal(&p->done);
        pthread_mutex_unlock(&p->lock);
    }
}

/* Runs the thread's own share, then what is left of the others. */
static void run_job(pool *p, int index, unsigned job) {
    for (int k = 0; k < p->threads; ++k) {
        share *const s = &p->shares[(index + k) % p->threads];
        unsigned done = 0, more;
        while ((more = run_pieces(s, job, k == 0)) > 0) done += more;
        finish(p, done);
    }
}

/* Whether the share is of another job than `seen`. */
static int has_job(share *s, unsigned seen) {
    return job_of(atomic_load(&s->left)) != seen;
}

/* Whether nothing is left to be finished. */
static int is_done(pool *p) {
    return atomic_load(&p->pending) == 0;
}

#ifdef __linux__
static int processor(void) {
    return sched_getcpu();
}

/* Leaves a processor.  Linux may wake a thread on the one of the thread that has woken it, where it gets no time before
 * the job is done, and leave it there, other processors idle, for as long as jobs follow one another. */
static void leave(int at) {
    cpu_set_t allowed, others;
    if (at < 0 || at >= CPU_SETSIZE || sched_getcpu() != at || sched_getaffinity(0, sizeof allowed, &allowed)) return;
    others = allowed;
    CPU_CLR((size_t)at, &others);
    if (CPU_COUNT(&others) && !sched_setaffinity(0, sizeof others, &others))
        sched_setaffinity(0, sizeof allowed, &allowed);
}
#else
static int processor(void) {
    return -1;
}

static void leave(int at) {
    (void)at;
}
#endif

/* Spins until the share is of another job than `seen`: whether it is. */
static int spin_for_job(const worker *w, share *s, unsigned seen) {
    const int64_t begin = nanoseconds();
    for (int64_t now = begin; now - begin < w->spin; now = nanoseconds())
        for (int k = 0; k < 64; ++k) {
            if (has_job(s, seen)) return 1;
            pause_thread();
        }
    return 0;
}

/* Sleeps until the share is of another job than `seen`, and decides how long to spin for the one after it. */
static void sleep_for_job(worker *w, share *s, unsigned seen) {
    pool *const p = w->owner;
    const int64_t begin = nanoseconds(), had = nanoseconds_of(CLOCK_THREAD_CPUTIME_ID);
    w->awake += begin - w->woken;
    w->held_up += begin - w->woken - (had - w->had);
    for (; w->awake > RECENT; w->awake /= 2) w->held_up /= 2;
    pthread_mutex_lock(&p->lock);
    atomic_fetch_add(&p->sleepers, 1);
    while (!has_job(s, seen)) pthread_cond_wait(&p->wake, &p->lock);
    atomic_fetch_sub(&p->sleepers, 1);
    pthread_mutex_unlock(&p->lock);
    leave(atomic_load(&p->caller_at));
    w->woken = nanoseconds();
    w->had = nanoseconds_of(CLOCK_THREAD_CPUTIME_ID);
    const int long_spin = w->woken - begin < LONGEST_SPIN && w->held_up * HELD_UP < w->awake;
    w->spin = long_spin ? LONGEST_SPIN : SPIN_NANOSECONDS;
}

static void *work(void *arg) {
    worker *const w = arg;
    pool *const p = w->owner;
    share *const own = &p->shares[w->index];
    w->spin = SPIN_NANOSECONDS;
    w->woken = nanoseconds();
    w->had = nanoseconds_of(CLOCK_THREAD_CPUTIME_ID);
    for (unsigned seen = 0;;) {
        if (!spin_for_job(w, own, seen)) sleep_for_job(w, own, seen);
        seen = job_of(atomic_load(&own->left));
        if (atomic_load(&p->stop)) return NULL;
        run_job(p, w->index, seen);
    }
}

/* Gives each thread its share of [0, n), the first n % threads of them one longer, and wakes who sleeps. */
static void publish(pool *p, unsigned job, int64_t n, void (*fn)(void *arg, int64_t begin, int64_t end), void *arg) {
    const int64_t low = n / p->threads, longer = n % p->threads;
    unsigned all = 0;
    for (int k = 0; k < p->threads; ++k) {
        share *const s = &p->shares[k];
        s->fn = fn;
        s->arg = arg;
        s->begin = low * k + (k < longer ? k : longer);
        s->size = low + (k < longer);
        s->pieces = (unsigned)(s->size < PIECES ? s->size : PIECES);
        all += s->pieces;
    }
    atomic_store(&p->pending, all);
    for (int k = p->threads; k-- > 0;) atomic_store(&p->shares[k].left, packed(job, 0, p->shares[k].pieces));
    if (atomic_load(&p->sleepers)) {
        atomic_store(&p->caller_at, processor());
        pthread_mutex_lock(&p->lock);
        pthread_cond_broadcast(&p->wake);
        pthread_mutex_unlock(&p->lock);
    }
}

/* Spins until nothing is left to be finished, but no longer than that: whether nothing is. */
static int spin_until_done(pool *p, int64_t longest) {
    for (int64_t limit = nanoseconds() + longest; nanoseconds() < limit;)
        for (int k = 0; k < 64; ++k) {
            if (is_done(p)) return 1;
            pause_thread();
        }
    return 0;
}

/* Spins on as long as a thread may: whether nothing is left.  If others had the processor meanwhile, the caller soon
 * sleeps instead, for a time. */
static int spin_on_until_done(pool *p) {
    const int64_t begin = nanoseconds();
    if (begin < p->brief_until) return 0;
    const int64_t had = nanoseconds_of(CLOCK_THREAD_CPUTIME_ID);
    const int done = spin_until_done(p, LONGEST_SPIN - SPIN_NANOSECONDS);
    const int64_t end = nanoseconds(), held_up = end - begin - (nanoseconds_of(CLOCK_THREAD_CPUTIME_ID) - had);
    if (held_up * HELD_UP >= LONGEST_SPIN) p->brief_until = end + RECENT;
    return done;
}

static void wait_for_workers(pool *p) {
    if (spin_until_done(p, SPIN_NANOSECONDS) || spin_on_until_done(p)) return;
    pthread_mutex_lock(&p->lock);
    atomic_store(&p->caller_sleeps, 1);
    while (!is_done(p)) pthread_cond_wait(&p->done, &p->lock);
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
    const unsigned job = ++p->job;
    publish(p, job, n, fn, arg);
    run_job(p, 0, job);
    wait_for_workers(p);
    pthread_mutex_unlock(&p->busy);
}

static void end_workers(pool *p, int started) {
    atomic_store(&p->stop, 1);
    publish(p, ++p->job, 0, NULL, NULL);
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

/* Zeros that begin with a line of a cache. */
static void *lines(size_t count, size_t size) {
    void *p;
    return posix_memalign(&p, LINE, count * size) ? NULL : memset(p, 0, count * size);
}

irc_pool *irc_rt_create(int threads) {
    if (threads < 1) threads = 1;
    pthread_once(&fork_handler, install_fork_handler);
    pool *const p = lines(1, sizeof *p);
    if (!p) return NULL;
    p->workers = calloc((size_t)threads, sizeof *p->workers);
    p->shares = lines((size_t)threads, sizeof *p->shares);
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
