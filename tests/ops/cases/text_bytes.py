"""StringTensorPack and StringTensorUnpack: any letters, empty strings, gaps, places outside of the symbols."""

from irc.ops.text_bytes import StringTensorPack, StringTensorUnpack
from tests.ops.cases import Case, Spec

SYMBOLS = Spec("u8", (9,), values=list("aäbcdß!".encode()))
CASES = [
    Case(StringTensorUnpack(), (Spec("string", (4,), values=["Monday", "", "ÄÖÜ ß", "\U0001f600 x"]),)),
    Case(StringTensorUnpack(), (Spec("string", (2, 2), values=["a", "b c", "", "ö"]),)),
    Case(StringTensorUnpack(), (Spec("string", (), values="one"),)),
    Case(StringTensorUnpack(), (Spec("string", (0,), values=[]),)),
    Case(
        StringTensorPack(),
        (Spec("i32", (2, 2), values=[0, 1, 4, 9]), Spec("i32", (2, 2), values=[1, 4, 4, 9]), SYMBOLS),
    ),
    Case(StringTensorPack(), (Spec("i64", (3,), values=[-5, 5, 99]), Spec("i64", (3,), values=[1, 3, 200]), SYMBOLS)),
]
