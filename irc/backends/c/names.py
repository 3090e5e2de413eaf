"""C identifiers for names of the user's model: valid, unique, and the same from run to run.

A name of the model becomes an identifier that nothing else can be.  It keeps its form where it is made of words that
`harmless` knows; otherwise it ends with an underscore, as no keyword, macro, function or type of C, POSIX, a compiler
or irc does.  So no list must foresee what headers define: a word missing here costs an underscore.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

from irc.backends.c.expr import MATH, PREDICATES
from irc.backends.c.text import KEYWORDS, CName

LONGEST = 60
"""Characters of a model's name that an identifier keeps."""
_OWN = """main NULL NAN INFINITY memcpy memset in out ctx arena pool dims out_dims arg begin end args weights
changed error int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t size_t uintptr_t base linux unix"""


def _reserved() -> frozenset[str]:
    functions = {v.replace("$", s) for v in MATH.values() for s in ("", "f")} | set(PREDICATES)
    return KEYWORDS | frozenset(_OWN.split()) | functions


RESERVED = _reserved()
"""Names that generated functions use, and that variables must not have."""


# ---------------------------------------------------------------------- known words
_ALONE = """
accumulator activation add affine anchor anchors att attention attn audio average axis backbone base batch batches
beam bert bias block blocks bn body bottleneck box boxes branch cache cat cell centers channel channels classes
classifier cls cn codes concat concatenated context conv convolution cosine count counts coverage crop cross current
data decoder dense depth depthwise detection detections digits dilation dim downsample dropout dw edge edges emb
embed embedding embeddings encoder entropy epsilon expand expanded feats feature features feed ffn filters flatten
following frame frames gate gelu gemm global graph gru hardswish head heads height hidden history hn ids image
images img inception initial inner input inputs instance kernel keys label labels lane lanes last latent latents
layer layernorm layers length lengths level linear local logits loss lstm main mask matmul matrix mean mel memory
mlp mobile model module momentum most neck node nodes noise norm normal normalized norms num object offset one ones
op outer output outputs pad padded padding panel past patch patches pixel pixels place planes points pointwise
pooled pooling position positions power present prev previous probabilities probs proj project projection pw qkv
quantized query ratio rec recurrent region relu reshape reshaped residual resized resnet resnets result results rms
rnn roi rope rotary row rows running samples scale scaled scales score scores scratch self seq seqlen sequence
sequences sequential shape shift shortcut sigmoid silu size sizes skip softmax source spatial speaker spectrogram
split sppf squeeze src stage state states stem stems steps stride strides swish tail target targets tensor text
texts tgt tiles timestep timesteps token tokens total transformer transpose transposed unit units unpacked unsqueeze
upsample value values var variance vector vectors video vocabulary waveform weighted width window windows word words
zero zeros"""
_TOGETHER = """
abs acos acosh adagrad adam align and arg array asin asinh atan atanh bernoulli beta binarizer bit bitwise blackman
bool cached cast category causal ceil celu center clip col compress constant construct copy cos cosh cum cumulative
cv default deform dequantize det dev dfl dft dict div down dynamic einsum element elements elu empty ensemble equal
erase erf excite exp extractor eye fake fc final first flex floor freq from full gamma gather get glu gradient
greater grid group groups h hamming hann hard hardmax has hat hh high hot i id identity idf if ih imputer in index
indices inf insert integer interpolate into inv k keras key leaky len less like likelihood lm ln log loop low lower
lrn ltrb map mapper mat match max min mish mod moving mul mult multi multinomial multiply neg negative no non
normalization normalizer not of on onnx optional or out packed parameter per point pool post pow prod product q
quant quantize r random range read reciprocal reduce regex regressor resize reverse round sample scaler scan scatter
se select selu serving set shrink sign sin sinh slice slices softplus softsign space sqrt square std step stft
string sub sum suppression svm swi t tan tanh thresholded tile time tind to top tracked tree trilu true type u
uniform unique unpool up update upper use v variable variadic vectorizer w weight weights where with without wpe
write wte x xor y z zip"""
_WORDS = frozenset(_ALONE.split()) - RESERVED
"""Words that may be names by themselves."""
_PARTS = _WORDS | frozenset(_TOGETHER.split())
"""Words that longer names consist of."""
_PART = re.compile(r"[A-Z]?[a-z]+|[0-9]+|[A-Z]+(?![a-z])", re.ASCII)


@lru_cache(1 << 14)
def harmless(name: str) -> bool:
    """Tell whether an identifier consists of words that, so put together, mean nothing to C, its libraries or irc."""
    parts = name.split("_")
    if len(parts) == 1:
        word = re.fullmatch(r"([a-z]+)[0-9]*", name, re.ASCII)
        if len(name) == 1:
            return name.isalpha() and name != "I"
        return word is not None and (word[1] in _WORDS or (len(word[1]) == 1 and word[1] not in "ijy"))
    if name == name.upper() or parts[-1] == "t" or not parts[0][:1].isalpha() or re.fullmatch("[A-Z]", parts[0]):
        return False  # as macros, types and M_PIf are
    return all(map(_is_known, parts))


def _is_known(part: str) -> bool:
    """Tell whether a part of a name is a number, a letter with or without one, or words."""
    if re.fullmatch(r"[0-9]+|[A-Za-z][0-9]*", part, re.ASCII) or part.lower().rstrip("0123456789") in _PARTS:
        return True
    found = _PART.findall(part)
    known = all(len(w) == 1 or w.isdigit() or w.lower() in _PARTS for w in found)
    return bool(part) and "".join(found) == part and known


# ------------------------------------------------------------------------- drawing
def identifier(name: str) -> str:
    """Replace everything that C does not allow in a name by one underscore; the result may be a keyword."""
    text = re.sub(r"_?[^A-Za-z0-9_]+", "_", name[: 16 * LONGEST]).strip("_") or "v"
    if text[0].isdigit() or text.startswith("irc_"):
        text = f"v{text}"
    return text[:LONGEST].rstrip("_")


def stem(name: str) -> str:
    """Strip a number that counts up over a whole process from a name (`r123`, `d?7`)."""
    return "r" if re.fullmatch(r"r\d+", name) else name.split("?", maxsplit=1)[0]


class Names:
    """Hands out identifiers, each once."""

    def __init__(self, taken: frozenset[str] = RESERVED) -> None:
        self.taken = set(taken)
        self._next: dict[tuple[str, str], int] = {}

    def of_model(self, wanted: str, numbered: bool = False) -> CName:
        """Draw an identifier like a name of the model: `batch`, `batch_2` …, `HUGE_VAL_`, `HUGE_VAL_2_` …

        numbered: `batch0`, `batch1` …
        """
        return self._draw(identifier(wanted), lambda name: name if harmless(name) else f"{name}_", numbered)

    def within(self, prefix: CName, wanted: str) -> CName:
        """Draw an identifier like a name of the model, for a function: it begins with the model's prefix."""
        base = identifier(wanted)
        plain = harmless(f"p_{base}") and not re.fullmatch(r"data[0-9]+", base)  # those are the embedded weights
        return self._draw(f"{prefix}_{base}", lambda name: name if plain else f"{name}_", False)

    def own(self, wanted: str, numbered: bool = False) -> CName:
        """Draw an identifier for a name that irc gives; ValueError if it is no identifier."""
        return self._draw(CName(wanted), str, numbered)

    def _draw(self, base: str, finish: Callable[[str], str], numbered: bool) -> CName:
        found = finish(base)
        if numbered or found in self.taken:
            between = "" if numbered else "_"
            count = self._next.get((base, between), 0 if numbered else 2)
            while (found := finish(f"{base}{between}{count}")) in self.taken:
                count += 1
            self._next[base, between] = count + 1
        self.taken.add(found)
        return CName(found)


# -------------------------------------------------------------------------- prefix
_NAMESPACES = re.compile(
    r"(?:irc|pthread|posix|sem|mtx|cnd|tss|thrd|call|atomic|aio|res|svc|inet6?|[fi]+a?notify|clock|timer|timespec"
    r"|(?:str|mem|wcs)[a-z]*|[a-z]*time)(?:_|$)"
)
"""Where names of C and POSIX begin that could end like those of the interface, or that headers declare, and irc's."""


def prefix_of_file(name: str) -> CName:
    """Make the prefix of public names and of files from a model file's name without its ending."""
    made = prefix_of(name)
    return made.then("_model") if _LIKE_KERNELS.fullmatch(made) else made


def given_prefix(name: str) -> CName:
    """Check the prefix that somebody wants.  Raises ValueError with what it must be."""
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name, re.ASCII) or name in KEYWORDS:
        raise ValueError("an identifier of C that begins with a letter")
    if len(name) > 40 or name.endswith("_"):
        raise ValueError("at most 40 characters, and no underscore at the end")
    if _NAMESPACES.match(name.lower()) or _LIKE_KERNELS.fullmatch(name):
        raise ValueError("a name that does not begin or end as those of C, POSIX and irc do")
    return CName(name)


_LIKE_KERNELS = re.compile(r"(?:.*_)?kernels(?:_[0-9]+)?")
"""Names whose files would be taken for those of kernels."""


def prefix_of(name: str) -> CName:
    """Make the prefix of all public names from the model's name: `digits` for digits_run and DIGITS_INPUTS."""
    made = re.sub(r"[^A-Za-z0-9_]+", "_", name[: 16 * LONGEST]).strip("_").lower()[:40].rstrip("_")
    free = made and not made[0].isdigit() and not _NAMESPACES.match(made) and made not in KEYWORDS
    return CName(made if free else f"model_{made}".rstrip("_"))
