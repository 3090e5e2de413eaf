"""Strings: joined, changed, split, matched, counted, compared, converted and moved."""

from irc.ir.types import f32, i32, string
from irc.ops.cast import Cast
from irc.ops.compare import Equal
from irc.ops.gather import Gather
from irc.ops.texts import ChangeCase, RegexFullMatch, StringConcat, StringNormalizer, StringSplit
from irc.ops.tfidf import TfIdfVectorizer
from irc.ops.unique import Unique
from tests.ops.cases import Case, Spec

NAN, INF = float("nan"), float("inf")
WORDS = Spec("string", (6,), values=["Monday", "tuesday", "", "ÄÖÜ ß", "monday", "\U0001f600 x"])
TABLE = Spec("string", (2, 3), values=["a b", " c  d\te ", "", "a,,b", ",", "x"])
MODES = ("TF", "IDF", "TFIDF")
GRAMS = {
    "max_gram_length": 2,
    "max_skip_count": 2,
    "min_gram_length": 1,
    "ngram_counts": (0, 2),
    "ngram_indexes": (0, 3, 1, 2),
    "weights": (0.5, 2.0, 3.0, 4.0),
}
NUMBERS = Spec("i64", (2, 6), values=[1, 2, 1, 2, 9, 1, 2, 2, 2, 1, 1, 0])
CASES = [
    Case(StringConcat(), (WORDS, WORDS)),
    Case(StringConcat(), (TABLE, Spec("string", (3,), values=["!", "", "ö"]))),
    Case(StringConcat(), (TABLE, Spec("string", (), values="-", const=True))),
    Case(StringConcat(), (Spec("string", (0,), values=[]), Spec("string", (0,), values=[]))),
    *(Case(ChangeCase(upper=u), (WORDS,)) for u in (False, True)),
    *(
        Case(StringNormalizer(case_change_action=a, is_case_sensitive=s, stopwords=("monday", "x")), (WORDS,))
        for a in ("NONE", "LOWER", "UPPER")
        for s in (False, True)
    ),
    Case(StringNormalizer(stopwords=("a",)), (Spec("string", (1, 2), values=["a", "a"]),)),
    Case(StringNormalizer(case_change_action="LOWER"), (WORDS,)),
    *(Case(StringSplit(delimiter=d, maxsplit=m), (TABLE,)) for d in ("", ",", "b") for m in (None, 0, 1, 2)),
    Case(StringSplit(), (Spec("string", (0, 2), values=[]),)),
    *(
        Case(RegexFullMatch(pattern=p), (WORDS,))
        for p in ("", ".*day", "(?i)monday", "[^a-z]+", "\\w{6,7}", "(a|b)*x$", ".*\\bx")
    ),
    *(Case(TfIdfVectorizer(mode=m, pool_int64s=(1, 2, 1, 2, 2, 1), **GRAMS), (NUMBERS,)) for m in MODES),  # type: ignore[arg-type]
    Case(
        TfIdfVectorizer(mode="TF", pool_strings=("a", "b", "a", "b", "b", "a"), **GRAMS),  # type: ignore[arg-type]
        (Spec("string", (4,), values=["a", "b", "c", "a"]),),
    ),
    Case(Equal(), (WORDS, Spec("string", (1,), values=["monday"]))),
    Case(Cast(to=string), (Spec("f32", (9,), values=[0.1, 1e-5, 123456789, 1e20, -0.0, 2, NAN, INF, -INF]),)),
    Case(Cast(to=string), (Spec("f64", (5,), values=[0.1, 1e-5, 123456789, 1e16, -1.5]),)),
    *(Case(Cast(to=string), (Spec(t, (4,)),)) for t in ("i8", "u8", "i64", "u64", "bool")),
    *(Case(Cast(to=t), (Spec("string", (4,), values=["1", "-2.5", "3e2", " 7 "]),)) for t in (f32, i32)),
    Case(Gather(), (TABLE, Spec("i64", (2,), values=[1, 0]), Spec("i64", (), values=1, const=True))),
    *(Case(Unique(sorted=s), (Spec("string", (5,), values=["b", "a", "b", "", "ab"]),)) for s in (True, False)),
]
