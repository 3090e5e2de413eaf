"""CTCGreedyDecoder, CTCGreedyDecoderSeqLen, CTCLoss: blanks, repeated classes, lengths of all kinds."""

from irc.ir.types import i64
from irc.ops.ctc import CTCGreedyDecoder, CTCGreedyDecoderSeqLen, CTCLoss
from tests.ops.cases import Case, Spec

MASK = Spec("f32", (5, 2), values=[1, 1, 1, 1, 1, 0, 1, 0, 0, 1])
LENGTHS = Spec("i32", (3,), values=[5, 0, 9])
BLANK = Spec("i32", (), values=1, const=True)
LABELS = (Spec("i32", (4,), values=[6, 4, 0, 5]), Spec("i32", (4, 4), 0, 3), Spec("i32", (4,), values=[3, 2, 0, 4]))


def loss(collapse: bool, merge: bool, unique: bool, *more: Spec) -> Case:
    made = CTCLoss(preprocess_collapse_repeated=collapse, ctc_merge_repeated=merge, unique=unique)
    return Case(made, (Spec("f32", (4, 6, 5)), *LABELS, *more), 1e-5)


CASES = [
    *(Case(CTCGreedyDecoder(ctc_merge_repeated=m), (Spec("f32", (5, 2, 3)), MASK)) for m in (True, False)),
    Case(CTCGreedyDecoder(), (Spec("f16", (7, 1, 2)), Spec("f16", (7, 1), 1, 1))),
    *(Case(CTCGreedyDecoderSeqLen(merge_repeated=m), (Spec("f32", (3, 6, 3)), LENGTHS)) for m in (True, False)),
    Case(
        CTCGreedyDecoderSeqLen(classes_index_type=i64, sequence_length_type=i64),
        (Spec("f64", (3, 6, 3)), LENGTHS, BLANK),
    ),
    *(loss(c, m, u) for c in (False, True) for m in (False, True) for u in (False, True)),
    loss(False, True, False, Spec("i32", (), values=0, const=True)),
    Case(
        CTCLoss(),
        (
            Spec("f64", (2, 4, 3)),
            Spec("i64", (2,), values=[4, 2]),
            Spec("i64", (2, 3), values=[0, 7, 1, 1, 1, 1]),
            Spec("i64", (2,), values=[2, 3]),
        ),
        1e-9,
    ),
]
