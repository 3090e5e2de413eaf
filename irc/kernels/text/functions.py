"""The functions over strings that there are: `TextKernel`s, in C."""

from __future__ import annotations

from irc.kernels.core.text import Piece
from irc.kernels.text.base import TextKernel

IN = "const int64_t *"
OUT = "int64_t *"

ADDRESSES = TextKernel(
    "addresses",
    "    for (int64_t i = 0; i < n; i++) y[i] = (int64_t)(intptr_t)(pool_of_texts + offsets[i]);\n",
    (("offsets", IN), ("pool_of_texts", "const uint8_t *")),
    (("y", OUT),),
    ("n",),
)
"""The strings whose texts start at these offsets of constant memory."""

READ = TextKernel(
    "read",
    """    for (int64_t i = 0; i < n; i++) {
        const int64_t size = x[2 * i] && x[2 * i + 1] > 0 ? x[2 * i + 1] : 0;
        const int64_t text = irc_text_copy(&texts, (const char *)(intptr_t)x[2 * i], size);
        if (y) y[i] = text;
    }
""",
    (("x", IN),),
    (("y", OUT),),
    ("n",),
    makes_texts=True,
)
"""The strings that the caller gives: a pointer and a number of bytes each."""

WRITE = TextKernel(
    "write",
    """    for (int64_t i = 0; i < n; i++) {
        y[2 * i] = (int64_t)(intptr_t)irc_text_bytes(x[i]);
        y[2 * i + 1] = irc_text_size(x[i]);
    }
""",
    (("x", IN),),
    (("y", OUT),),
    ("n",),
)
"""A pointer and a number of bytes for each string, for the caller."""

SIZES = TextKernel(
    "sizes", "    for (int64_t i = 0; i < n; i++) y[i] = irc_text_size(x[i]);\n", (("x", IN),), (("y", OUT),), ("n",)
)
"""The number of bytes of each string."""

SYMBOLS = TextKernel(
    "symbols",
    """    int64_t used = 0;
    for (int64_t i = 0; i < n; i++) {
        const int64_t size = irc_text_size(x[i]) < total - used ? irc_text_size(x[i]) : total - used;
        if (size > 0) memcpy(y + used, irc_text_bytes(x[i]), (size_t)size);
        used += size;
    }
""",
    (("x", IN), ("sum", IN)),
    (("y", "uint8_t *"),),
    ("n", "total"),
)
"""The bytes of all strings, one behind the other."""

PACK = TextKernel(
    "pack",
    """    for (int64_t i = 0; i < n; i++) {
        const int64_t last = ends[i] < total ? ends[i] : total;
        const int64_t first = begins[i] < 0 ? 0 : begins[i] < total ? begins[i] : total;
        const int64_t text = irc_text_copy(&texts, (const char *)symbols + first, last > first ? last - first : 0);
        if (y) y[i] = text;
    }
""",
    (("begins", IN), ("ends", IN), ("symbols", "const uint8_t *")),
    (("y", OUT),),
    ("n", "total"),
    makes_texts=True,
)
"""The strings whose bytes stand there among the symbols; one that leaves these is cut."""

CONCAT = TextKernel(
    "concat",
    """    for (int64_t i = 0; i < n; i++) {
        const int64_t a = irc_text_size(x[i]), b = irc_text_size(z[i]);
        char *bytes = irc_text_begin(&texts, a + b);
        if (!bytes) continue;
        memcpy(bytes, irc_text_bytes(x[i]), (size_t)a);
        memcpy(bytes + a, irc_text_bytes(z[i]), (size_t)b);
        y[i] = irc_text_end(bytes, a + b);
    }
""",
    (("x", IN), ("z", IN)),
    (("y", OUT),),
    ("n",),
    makes_texts=True,
)

EQUAL = TextKernel(
    "equal",
    "    for (int64_t i = 0; i < n; i++) y[i] = irc_text_order(x[i], z[i]) == 0;\n",
    (("x", IN), ("z", IN)),
    (("y", "uint8_t *"),),
    ("n",),
)

FIND = TextKernel(
    "find",
    """    for (int64_t i = 0; i < n; i++) {
        int64_t low = 0, high = count;
        while (low < high) {
            const int64_t middle = (low + high) / 2;
            if (irc_text_order(keys[middle], x[i]) < 0) low = middle + 1;
            else high = middle;
        }
        y[i] = low < count && irc_text_order(keys[low], x[i]) == 0 ? low : count;
    }
""",
    (("x", IN), ("keys", IN)),
    (("y", OUT),),
    ("n", "count"),
)
"""The place of each string among ascending keys; their number where it is none."""

CHANGE_CASE = TextKernel(
    "change_case",
    """    for (int64_t i = 0; i < n; i++) {
        const int64_t size = irc_text_size(x[i]);
        const unsigned char *from = (const unsigned char *)irc_text_bytes(x[i]);
        char *bytes = irc_text_begin(&texts, size);
        if (!bytes) continue;
        for (int64_t k = 0; k < size; k++) {
            const int pair = (from[k] & 0xE0) == 0xC0 && k + 1 < size && (from[k + 1] & 0xC0) == 0x80;
            const int32_t letter = pair ? (from[k] & 31) << 6 | (from[k + 1] & 63) : from[k];
            if (pair && letter < cases_count) {
                bytes[k] = (char)(0xC0 | cases[letter] >> 6);
                bytes[k + 1] = (char)(0x80 | (cases[letter] & 63));
                k++;
            } else {
                bytes[k] = (char)(letter < 128 ? cases[letter] : from[k]);
            }
        }
        y[i] = irc_text_end(bytes, size);
    }
""",
    (("x", IN), ("cases", "const int32_t *")),
    (("y", OUT),),
    ("n", "cases_count"),
    makes_texts=True,
)
"""Each string with the other case, by a table, of letters whose UTF-8 has one or two bytes."""

SPLITTING = Piece(
    "IRC_TEXT_SPLITTING",
    """
static inline int irc_text_space(char c) {
    return c == ' ' || (c >= '\\t' && c <= '\\r');
}
/* The next part of a text of `size` bytes from *at on, as *begin and its length; -1 if there is none.
 * last: the rest is one part. */
static inline int64_t irc_text_part(const char *bytes, int64_t size, const char *mark, int64_t width, int last,
                                    int64_t *at, int64_t *begin) {
    int64_t from = *at, to;
    if (from > size) return -1;
    if (width) {
        to = last ? size : from;
        while (!last && to + width <= size && memcmp(bytes + to, mark, (size_t)width)) to++;
        if (!last && to + width > size) to = size;
        *at = to == size ? size + 1 : to + width;
    } else {
        while (from < size && irc_text_space(bytes[from])) from++;
        if (from == size) return -1;
        to = last ? size : from;
        while (!last && to < size && !irc_text_space(bytes[to])) to++;
        while (last && irc_text_space(bytes[to - 1])) to--;
        *at = last ? size + 1 : to;
    }
    *begin = from;
    return to - from;
}
""",
)

SPLIT_COUNT = TextKernel(
    "split_count",
    """    for (int64_t i = 0; i < n; i++) {
        int64_t at = 0, begin = 0, count = 0;
        const int64_t size = irc_text_size(x[i]), width = irc_text_size(mark[0]);
        while (irc_text_part(irc_text_bytes(x[i]), size, irc_text_bytes(mark[0]), width, most >= 0 && count >= most,
                             &at, &begin) >= 0) count++;
        y[i] = count;
    }
""",
    (("x", IN), ("mark", IN)),
    (("y", OUT),),
    ("n", "most"),
    pieces=(SPLITTING,),
)
"""The number of parts of each string; most: how often it is split at most, -1 for any number."""

SPLIT = TextKernel(
    "split",
    """    for (int64_t i = 0; i < n; i++) {
        int64_t at = 0, begin = 0, count = 0, length;
        const char *bytes = irc_text_bytes(x[i]);
        const int64_t size = irc_text_size(x[i]), width = irc_text_size(mark[0]);
        while ((length = irc_text_part(bytes, size, irc_text_bytes(mark[0]), width, most >= 0 && count >= most, &at,
                                       &begin)) >= 0) {
            const int64_t part = irc_text_copy(&texts, bytes + begin, length);
            if (y && count < parts) y[i * parts + count] = part;
            count++;
        }
        for (; y && count < parts; count++) y[i * parts + count] = 0;
    }
""",
    (("x", IN), ("mark", IN)),
    (("y", OUT),),
    ("n", "most", "parts"),
    makes_texts=True,
    pieces=(SPLITTING,),
)
"""The parts of each string, and empty strings behind them."""

STEPPING = Piece(
    "IRC_TEXT_STEPPING",
    """
/* The class of the character at bytes[*at], which becomes the place of the next one. */
static inline int64_t irc_text_class(const char *bytes, int64_t size, const int32_t *bounds, int64_t classes,
                                     int64_t *at) {
    int64_t k = *at, low = 0, high = classes;
    const unsigned char lead = (unsigned char)bytes[k];
    int more = lead < 0xC0 ? 0 : lead < 0xE0 ? 1 : lead < 0xF0 ? 2 : 3;
    int32_t letter = lead < 0x80 ? lead : lead & (0x3F >> more);
    for (k++; more > 0 && k < size; more--, k++) letter = letter << 6 | (bytes[k] & 0x3F);
    while (high - low > 1) {
        const int64_t middle = (low + high) / 2;
        if (bounds[middle] <= letter) low = middle;
        else high = middle;
    }
    *at = k;
    return low;
}
""",
    ("irc_text_class",),
)

RUN_AUTOMATON = TextKernel(
    "run_automaton",
    """    for (int64_t i = 0; i < n; i++) {
        const int64_t size = irc_text_size(x[i]);
        int32_t state = 0;
        for (int64_t k = 0; k < size;)
            state = steps[state * classes + irc_text_class(irc_text_bytes(x[i]), size, bounds, classes, &k)];
        y[i] = accepts[state];
    }
""",
    (("x", IN), ("bounds", "const int32_t *"), ("steps", "const int32_t *"), ("accepts", "const uint8_t *")),
    (("y", "uint8_t *"),),
    ("n", "classes"),
    pieces=(STEPPING,),
)
"""Whether an automaton over classes of characters accepts each string."""

FINDING = Piece(
    "IRC_TEXT_FINDING",
    """
/* The longest match of an automaton in a text of `size` bytes from *at on, or what stands before it and behind the one
 * before (between), as *begin and its length, of at least `least` characters; -1 if there is none.  *from: the end of
 * the match before. */
static inline int64_t irc_text_token(const char *bytes, int64_t size, const int32_t *bounds, const int32_t *steps,
                                     const int32_t *says, int64_t classes, int64_t least, int between, int64_t *at,
                                     int64_t *from, int64_t *begin) {
    while (*from <= size) {
        int64_t start = *at, end = start;
        int32_t state = 0;
        for (int64_t k = start; k < size && says[state] != 2;) {
            state = steps[state * classes + irc_text_class(bytes, size, bounds, classes, &k)];
            if (says[state] == 1) end = k;
        }
        if (end == start && start < size) {
            irc_text_class(bytes, size, bounds, classes, at);
            continue;
        }
        const int last = start >= size;
        int64_t to = between ? start : end, count = 0;
        *begin = between ? *from : start;
        *at = end;
        *from = last ? size + 1 : end;
        if (last && !between) return -1;
        for (int64_t k = *begin; k < to; k++) count += (bytes[k] & 0xC0) != 0x80;
        if (count >= least && count > 0) return to - *begin;
    }
    return -1;
}
""",
    ("irc_text_token",),
)
AUTOMATON = (("bounds", "const int32_t *"), ("steps", "const int32_t *"), ("says", "const int32_t *"))

TOKEN_COUNT = TextKernel(
    "token_count",
    """    for (int64_t i = 0; i < n; i++) {
        int64_t at = 0, from = 0, begin = 0, count = 0;
        while (irc_text_token(irc_text_bytes(x[i]), irc_text_size(x[i]), bounds, steps, says, classes, most / 2,
                              most % 2, &at, &from, &begin) >= 0) count++;
        y[i] = count;
    }
""",
    (("x", IN), *AUTOMATON),
    (("y", OUT),),
    ("n", "most", "classes"),
    pieces=(STEPPING, FINDING),
)
"""The number of tokens of each string; most: twice the fewest characters of one, and 1 for those between matches."""

TOKENS = TextKernel(
    "tokens",
    """    for (int64_t i = 0; i < n; i++) {
        int64_t at = 0, from = 0, begin = 0, count = 0, length;
        const char *bytes = irc_text_bytes(x[i]);
        while ((length = irc_text_token(bytes, irc_text_size(x[i]), bounds, steps, says, classes, most / 2, most % 2,
                                        &at, &from, &begin)) >= 0) {
            const int64_t token = irc_text_copy(&texts, bytes + begin, length);
            if (y && count < parts) y[i * parts + count] = token;
            count++;
        }
        for (; y && count < parts; count++) y[i * parts + count] = pad[0];
    }
""",
    (("x", IN), *AUTOMATON, ("pad", IN)),
    (("y", OUT),),
    ("n", "most", "parts", "classes"),
    makes_texts=True,
    pieces=(STEPPING, FINDING),
)
"""The tokens of each string, and a string in the places behind them."""

SORTING = Piece(
    "IRC_TEXT_SORTING",
    """#include <stdlib.h>

static int irc_text_compare(const void *a, const void *b) {
    return irc_text_order(*(const int64_t *)a, *(const int64_t *)b);
}
""",
)

RANK = TextKernel(
    "rank",
    """    if (n) memcpy(sorted, x, (size_t)n * sizeof *x);
    if (n) qsort(sorted, (size_t)n, sizeof *sorted, irc_text_compare);
    for (int64_t i = 0; i < n; i++) {
        int64_t low = 0, high = n;
        while (low < high) {
            const int64_t middle = (low + high) / 2;
            if (irc_text_order(sorted[middle], x[i]) < 0) low = middle + 1;
            else high = middle;
        }
        y[i] = low;
    }
""",
    (("x", IN),),
    (("y", OUT), ("sorted", OUT)),
    ("n",),
    pieces=(SORTING,),
)
"""How many strings come before each, which orders numbers as the strings are."""

NUMERALS = Piece(
    "IRC_TEXT_NUMERALS",
    """#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* The shortest digits that give the number back, as Python writes them.  Returns their number; text has 40 bytes. */
static inline int irc_text_float(char *text, double value, int single) {
    if (isnan(value)) return sprintf(text, "NaN");
    if (isinf(value)) return sprintf(text, value < 0 ? "-INF" : "INF");
    char digits[40];
    for (int p = 0; p < 17; p++) {
        sprintf(digits, "%.*e", p, value);
        const double back = single ? (double)strtof(digits, 0) : strtod(digits, 0);
        if (back == value) break;
    }
    const char *mark = strchr(digits, 'e');
    const int power = atoi(mark + 1), negative = digits[0] == '-';
    char plain[20];
    int count = 0, size = 0;
    for (const char *c = digits; c < mark; c++) if (*c >= '0' && *c <= '9') plain[count++] = *c;
    if (negative) text[size++] = '-';
    if (power < -4 || power > 15) {
        text[size++] = plain[0];
        if (count > 1) text[size++] = '.';
        for (int k = 1; k < count; k++) text[size++] = plain[k];
        return size + sprintf(text + size, "e%c%02d", power < 0 ? '-' : '+', power < 0 ? -power : power);
    }
    if (power < 0) {
        text[size++] = '0';
        text[size++] = '.';
        for (int k = -1; k > power; k--) text[size++] = '0';
    }
    for (int k = 0; k < count || k <= power; k++) {
        text[size++] = k < count ? plain[k] : '0';
        if (k == power && power >= 0) text[size++] = '.';
    }
    if (text[size - 1] == '.') text[size++] = '0';
    return size;
}
""",
)


def formatting(kind: str) -> TextKernel:
    """Make the function that writes numbers as text, of the type i64, u64, f32, f64 or bool."""
    types = {"i64": "int64_t", "u64": "uint64_t", "f32": "float", "f64": "double", "bool": "uint8_t"}
    texts = {
        "i64": 'sprintf(text, "%lld", (long long)x[i])',
        "u64": 'sprintf(text, "%llu", (unsigned long long)x[i])',
        "f32": "irc_text_float(text, (double)x[i], 1)",
        "f64": "irc_text_float(text, x[i], 0)",
        "bool": 'sprintf(text, x[i] ? "True" : "False")',
    }
    body = f"""    for (int64_t i = 0; i < n; i++) {{
        char text[40];
        const int64_t size = {texts[kind]};
        const int64_t made = irc_text_copy(&texts, text, size);
        if (y) y[i] = made;
    }}
"""
    read = (("x", f"const {types[kind]} *"),)
    return TextKernel(f"format_{kind}", body, read, (("y", OUT),), ("n",), makes_texts=True, pieces=(NUMERALS,))


PARSE = TextKernel(
    "parse",
    """    for (int64_t i = 0; i < n; i++) {
        char text[512], *end = text;
        const int64_t size = irc_text_size(x[i]) < 511 ? irc_text_size(x[i]) : 511;
        memcpy(text, irc_text_bytes(x[i]), (size_t)size);
        text[size] = 0;
        const double value = strtod(text, &end);
        while (*end == ' ' || (*end >= '\\t' && *end <= '\\r')) end++;
        y[i] = size && end == text + size ? value : (double)NAN;
    }
""",
    (("x", IN),),
    (("y", "double *"),),
    ("n",),
    pieces=(NUMERALS,),
)
"""The number that each string says; NaN where it says none."""
