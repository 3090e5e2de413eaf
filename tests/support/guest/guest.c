/* Calls functions of a shared library for a process of another machine, which writes commands to stdin and reads
 * answers from stdout.  Every number is an int64_t in the order of bytes of this machine.
 *
 *     guest library
 *
 * allocate: bytes -> address, aligned to 64, filled with 0xCD.  release: address.  write: address, bytes, data.
 * read: address, bytes -> data.  call: length of the name, name, numbers and addresses, LIMIT of them -> result.
 * pool: iterations of a piece -> address of a pool, behind which stands the number of its calls. */

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ALLOCATE, RELEASE, WRITE, READ, CALL, POOL };
enum { LIMIT = 64, LONGEST = 512 };

struct pool {
    struct pool *self;
    void (*parallel_for)(struct pool *self, int64_t n, void (*fn)(void *arg, int64_t begin, int64_t end), void *arg);
    int64_t calls, piece;
};

/* The last piece first. */
static void in_pieces(struct pool *self, int64_t n, void (*fn)(void *arg, int64_t begin, int64_t end), void *arg) {
    self->calls++;
    for (int64_t begin = n > 0 ? (n - 1) / self->piece * self->piece : -1; begin >= 0; begin -= self->piece)
        fn(arg, begin, begin + self->piece < n ? begin + self->piece : n);
}

static void fail(const char *what) {
    fprintf(stderr, "guest: %s\n", what);
    exit(1);
}

static void take(void *to, int64_t bytes) {
    if (bytes && fread(to, 1, (size_t)bytes, stdin) != (size_t)bytes) fail("the commands end too early");
}

static int64_t number(void) {
    int64_t found;
    take(&found, sizeof found);
    return found;
}

static void give(const void *from, int64_t bytes) {
    fwrite(from, 1, (size_t)bytes, stdout);
    fflush(stdout);
}

static void answer(int64_t value) { give(&value, sizeof value); }

static void *allocated(int64_t bytes) {
    const size_t size = ((size_t)bytes + 127) / 64 * 64;
    void *found = aligned_alloc(64, size);
    if (!found) fail("not enough memory");
    return memset(found, 0xCD, size);
}

/* What a function makes of integers and addresses.  It may take fewer than are given: the caller removes them. */
#define EIGHT(i) a[i], a[i + 1], a[i + 2], a[i + 3], a[i + 4], a[i + 5], a[i + 6], a[i + 7]
#define TYPES(T) T, T, T, T, T, T, T, T
typedef int64_t anything(TYPES(int64_t), TYPES(int64_t), TYPES(int64_t), TYPES(int64_t), TYPES(int64_t), TYPES(int64_t),
                         TYPES(int64_t), TYPES(int64_t));
static int64_t called(void *library) {
    char name[LONGEST] = {0};
    int64_t a[LIMIT], length = number();
    if (length >= LONGEST) fail("a name is too long");
    take(name, length);
    take(a, sizeof a);
    void *symbol = dlsym(library, name);
    if (!symbol) fail(name);
    anything *function;
    memcpy(&function, &symbol, sizeof function);
    return function(EIGHT(0), EIGHT(8), EIGHT(16), EIGHT(24), EIGHT(32), EIGHT(40), EIGHT(48), EIGHT(56));
}

int main(int argc, char **argv) {
    void *library = argc == 2 ? dlopen(argv[1], RTLD_NOW) : NULL;
    if (!library) fail(argc == 2 ? dlerror() : "usage: guest library");
    int64_t command;
    while (fread(&command, sizeof command, 1, stdin) == 1) {
        if (command == ALLOCATE) {
            answer((int64_t)(intptr_t)allocated(number()));
        } else if (command == RELEASE) {
            free((void *)(intptr_t)number());
        } else if (command == WRITE) {
            void *to = (void *)(intptr_t)number();
            take(to, number());
        } else if (command == READ) {
            const void *from = (const void *)(intptr_t)number();
            give(from, number());
        } else if (command == CALL) {
            answer(called(library));
        } else if (command == POOL) {
            struct pool *pool = allocated(sizeof *pool);
            *pool = (struct pool){pool, in_pieces, 0, number()};
            answer((int64_t)(intptr_t)pool);
        } else {
            fail("no such command");
        }
    }
    return 0;
}
