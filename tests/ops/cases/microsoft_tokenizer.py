"""Tokens by what they match and by what separates them, in several scripts, with other tokens than those too short."""

from irc.ops.tokenizer import Tokenizer
from tests.ops.cases import ALONE, Case, Spec

WORDS = ["the quick brown fox", "über größe 12", "", "a, b;c  d", "日本 語!", "__x"]
X, TABLE = Spec("string", (6,), values=WORDS), Spec("string", (3, 2), values=WORDS)
CASES = [
    *(Case(Tokenizer(least, "#", tokenexp="[a-zA-Z0-9_]+"), (x,)) for least in (1, 3) for x in (X, TABLE)),
    *(
        Case(Tokenizer(1, "", tokenexp=pattern), (X,))
        for pattern in (".", "(?s).", r"\w+", "[^ ]+x?", "qu|quick|b.o", "[a-z]*", "[A-Z]+", "(a|b)(c|, b)?")
    ),
    *(
        Case(Tokenizer(least, "#", separators=separators), (X,))
        for least, separators in (
            (1, ("",)),
            (1, (" ",)),
            (1, (" ", ",")),
            (2, ("[ ,;]+",)),
            (1, ("qu?i",)),
            (3, (r"\W",)),
        )
    ),
    Case(Tokenizer(1, "#", tokenexp="[a-z]+"), (Spec("string", (0,), values=[]),), note=ALONE),
    Case(Tokenizer(1, "#", tokenexp="[a-z]+"), (Spec("string", (2,), values=["", "?"]),)),
]
