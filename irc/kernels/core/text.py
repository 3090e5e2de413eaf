"""Assembling kernel text: templates with $names, and symbols made from a kernel's signature."""

from __future__ import annotations

import hashlib
from string import Template


def fill(text: str, **names: object) -> str:
    """The template with every $name replaced; a name without a value is an error."""
    return Template(text).substitute({k: str(v) for k, v in names.items()})


def symbol(*signature: object) -> str:
    """A C name for a signature: its words, and a hash where the words are long."""
    words = "_".join(str(s) for s in signature[:-1])
    last = str(signature[-1])
    return f"irc_{words}_{hashlib.sha256(last.encode()).hexdigest()[:10]}" if last else f"irc_{words}"


PROTOTYPES = """#include <stdint.h>
typedef struct irc_pool {
    void *self;
    void (*parallel_for)(void *self, int64_t n, void (*fn)(void *arg, int64_t begin, int64_t end), void *arg);
} irc_pool;
"""
