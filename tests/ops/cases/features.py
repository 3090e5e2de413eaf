"""Preparation of features, and maps of labels to labels."""

from irc.ops.features import (
    ArrayFeatureExtractor,
    Binarizer,
    FeatureVectorizer,
    Imputer,
    Normalizer,
    OneHotEncoder,
    Scaler,
)
from irc.ops.find_keys import FindKeys
from irc.ops.label_encoder import CategoryMapper, LabelEncoder
from tests.ops.cases import Case, Spec

NAN = float("nan")
TYPES = ("f32", "f64", "i32", "i64")
WORDS = Spec("string", (2, 3), values=["b", "a", "", "ü", "c", "b"])
NUMBERS = Spec("i64", (2, 3), values=[3, 1, -1, 7, 2, 3])
FLOATS = Spec("f32", (6,), values=[3, 1, NAN, -1, 0.5, 3])
MAPS = [
    (WORDS, {"keys_strings": ("c", "b", "ü")}),
    (NUMBERS, {"keys_int64s": (7, 3, -1)}),
    (FLOATS, {"keys_floats": (NAN, 0.5, 3.0)}),
    (FLOATS, {"keys_floats": (1.0, 0.5, 3.0)}),
]
VALUES = [{"values_strings": ("x", "", "é")}, {"values_int64s": (5, 6, 7)}, {"values_floats": (0.25, NAN, 1.0)}]
DOUBLES = {"keys_tensor": ("f64", (1.0, 0.5)), "values_tensor": ("i16", (3, 4)), "default_tensor": ("i16", (-9,))}
CASES = [
    *(Case(ArrayFeatureExtractor(), (Spec(t, (3, 5)), Spec("i64", (2,), values=[4, 0]))) for t in TYPES),
    Case(ArrayFeatureExtractor(), (Spec("f32", (5,)), Spec("i64", (1, 2), values=[1, 1]))),
    Case(ArrayFeatureExtractor(), (WORDS, Spec("i64", (2,), values=[2, 0]))),
    *(Case(Binarizer(threshold=0.5), (Spec(t, (3, 4)),)) for t in TYPES),
    Case(Binarizer(), (Spec("f32", (4,), values=[NAN, 0, 1, -1]),)),
    Case(FeatureVectorizer(inputdimensions=(2, 4, 1)), (Spec("i64", (3, 2)), Spec("i64", (3, 3)), Spec("i64", (3,)))),
    Case(FeatureVectorizer(inputdimensions=(1,)), (Spec("f32", (3, 2)),)),
    Case(Imputer(imputed_value_floats=(9.0,), replaced_value_float=NAN), (Spec("f32", (2, 2), values=[1, NAN, 0, 2]),)),
    Case(Imputer(imputed_value_floats=(9.0, 8.0)), (Spec("f64", (2, 2), values=[1, 0, 0, 2]),)),
    Case(Imputer(imputed_value_int64s=(9, 8), replaced_value_int64=2), (Spec("i32", (2, 2), values=[1, 2, 2, 0]),)),
    *(Case(Normalizer(norm=n), (Spec(t, (3, 4)),), rtol=1e-6) for n in ("MAX", "L1", "L2") for t in TYPES),
    Case(Normalizer(), (Spec("f32", (2, 2), values=[0, 0, -3, 1]),)),
    *(Case(OneHotEncoder(cats_int64s=(3, 1, 7)), (Spec(t, (2, 3), 0, 7),)) for t in TYPES),
    Case(OneHotEncoder(cats_strings=("b", "ü")), (WORDS,)),
    *(Case(Scaler(offset=(1.0,), scale=(0.5,)), (Spec(t, (3, 2)),)) for t in TYPES),
    Case(Scaler(offset=(1.0, 2.0), scale=(0.5, 3.0)), (Spec("f32", (3, 2)),)),
    Case(Scaler(), (Spec("i32", (3, 2)),)),
    *(Case(LabelEncoder(**keys, **values), (x,)) for x, keys in MAPS for values in VALUES),  # type: ignore[arg-type]
    Case(LabelEncoder(**DOUBLES), (Spec("f64", (3,), values=[0.5, 2, 1]),)),
    Case(LabelEncoder(**{**DOUBLES, "keys_tensor": ("i32", (1, 2))}), (Spec("i32", (3,), values=[2, 5, 1]),)),
    Case(CategoryMapper(cats_strings=("a", "b"), cats_int64s=(4, 2)), (WORDS,)),
    Case(CategoryMapper(cats_strings=("a", "b"), cats_int64s=(7, 3)), (NUMBERS,)),
    Case(FindKeys(), (Spec("i32", (50,), -9, 9), Spec("i32", (4,), values=[-8, 0, 3, 9], const=True))),
]
