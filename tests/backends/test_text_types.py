"""The types through which names and texts of a model reach what irc writes: each is harmless whatever it is made of."""

from __future__ import annotations

import ast
import builtins
import io
import json
import re
import shutil
import subprocess
import tokenize
import unicodedata
import zipfile
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from lxml import etree

from irc.backends.c.names import RESERVED, Names, harmless, prefix_of
from irc.backends.c.text import KEYWORDS, CComment, CName, block_comment, remark
from irc.backends.numpy.text import PyComment, PyDocstring, PyName
from irc.diagnostics.html_text import HtmlText
from irc.diagnostics.json_text import JsonText
from irc.diagnostics.terminal import LONGEST, TerminalText
from irc.formats.openvino.xmltext import XmlName, XmlText
from irc.ir.dim import LOCAL, Dim
from irc.ir.file_names import FileName, file_names, member_names
from tests.support.hostile_models import PAYLOADS

BUILTINS = frozenset(dir(builtins))
GCC = shutil.which("gcc")
compiler = pytest.mark.skipif(GCC is None, reason="no gcc")
FRAGMENTS = (
    "*/",
    "/*",
    "??/",
    "??",
    "\\",
    "\n",
    "\\\n",
    "//",
    '"',
    "'",
    "*",
    "/",
    "?",
    "#",
    "\0",
    "é",
    "\ud800",
    "x" * 99,
)
slow = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
texts = st.one_of(
    st.text(st.characters(codec=None)),
    st.lists(st.sampled_from(FRAGMENTS), max_size=12).map("".join),
    st.sampled_from(PAYLOADS),
)


def gcc(source: str, *flags: str) -> str:
    command = [str(GCC), "-x", "c", "-", "-o", "-", *flags]
    done = subprocess.run(command, input=source, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and not done.stderr, done.stderr
    return done.stdout


# ------------------------------------------------------------------------- C
@compiler
@settings(slow, max_examples=60)
@given(st.lists(texts, min_size=1, max_size=40))
def test_a_comment_is_a_comment(given: list[str]) -> None:
    """For the compiler's preprocessor, with trigraphs, alone and as lines of one comment."""
    lines = list(map(CComment, given))
    source = "".join(f"m{k}; {remark(line)}\n{block_comment([line])}\n" for k, line in enumerate(lines))
    source += block_comment(lines) + "\nlast;\n"
    assert source.isascii()
    for standard in ("c11", "gnu11"):
        seen = gcc(source, "-E", "-P", f"-std={standard}", "-trigraphs", "-Wall", "-Wextra", "-Werror", "-pedantic")
        assert seen.split() == [*(f"m{k};" for k in range(len(given))), "last;"]


@slow
@given(texts)
def test_a_comment_is_short_and_made_once(text: str) -> None:
    made = CComment(text)
    assert len(made) < 5000 and made.isprintable() and not made.endswith("\\")
    assert CComment(made) == made or len(made) > 400


@slow
@given(texts)
def test_other_text_is_no_name(text: str) -> None:
    valid = re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", text, re.ASCII) and text not in KEYWORDS
    if valid:
        assert CName(text) == text
    else:
        with pytest.raises(ValueError):
            CName(text)


def headers() -> list[str]:
    """Of C and POSIX, and of the compiler, as far as they are there."""
    wanted = """assert complex ctype dirent dlfcn errno fcntl fenv float inttypes iso646 limits locale math poll
    pthread pwd sched semaphore setjmp signal stdalign stdarg stdatomic stdbool stddef stdint stdio stdlib stdnoreturn
    string strings sys/mman sys/stat sys/time sys/types tgmath threads time uchar unistd wchar wctype"""
    return [f"#if __has_include(<{name}.h>)\n#include <{name}.h>\n#endif\n" for name in wanted.split()]


@compiler
@pytest.mark.parametrize("standard", ["c11", "gnu11", "gnu17"])
def test_no_macro_is_harmless(standard: str) -> None:
    found: set[str] = set()
    for header in headers():
        found |= set(re.findall(r"#define (\w+)", gcc(header, f"-std={standard}", "-D_GNU_SOURCE", "-dM", "-E")))
    assert len(found) > 1000
    odd = {name for name in found if name.endswith("_") and not name.startswith("_")}
    assert not [name for name in found if harmless(name)] and not odd


@compiler
def test_types_and_functions_of_our_headers_are_no_names_of_tensors() -> None:
    """What the headers declare that generated C includes; parameters of prototypes are no names of theirs."""
    ours = "".join(f"#include <{name}.h>\n" for name in ("math", "string", "stdint", "stddef", "time"))
    text = gcc(ours, "-std=gnu11", "-D_GNU_SOURCE", "-E", "-P")
    declared = set(re.findall(r"\b(\w+) ?\(", text)) | set(re.findall(r"\}? ?(\w+);", re.sub(r"\{[^{}]*\}", "", text)))
    assert {"memcpy", "tanhf", "int64_t"} <= declared
    assert not [name for name in declared if harmless(name) and len(name) > 2]


def test_keywords_and_what_generated_code_uses_are_not_harmless() -> None:
    assert not [name for name in KEYWORDS | RESERVED if harmless(name)]
    assert all(map(harmless, ["batch", "N", "seq", "encoder_0_weight", "MatMul_1"]))


@slow
@given(st.lists(texts, max_size=30))
def test_drawn_names_are_different_identifiers(wanted: list[str]) -> None:
    names = Names()
    prefix = prefix_of("".join(wanted[:1]))
    made = [names.of_model(w, numbered=k % 3 == 0) for k, w in enumerate(wanted)]
    made += [names.within(prefix, w) for w in wanted] + [names.own(n) for n in ("n", "size", "args")]
    assert len(set(made)) == len(made) and not RESERVED & set(made)
    assert all(name.endswith("_") or harmless(name) for name in made[: len(wanted)])
    assert all(len(name) < 130 and isinstance(name, CName) for name in made)


@compiler
def test_a_variable_of_every_name_compiles() -> None:
    wanted = [*PAYLOADS, *KEYWORDS, "isnan", "stdin", "offsetof", "signbit", "unix", "complex", "EOF", "M_PI", "y0"]
    names = Names()
    drawn = [names.of_model(w) for w in wanted * 2]
    lines = "\n".join(f"    int {name} = {k};" for k, name in enumerate(drawn))
    used = ("math", "string", "stdint", "complex", "stdio", "errno", "stddef", "time")
    source = "".join(f"#include <{n}.h>\n" for n in used)
    source += f"int f(void) {{\n{lines}\n    return {' + '.join(drawn)};\n}}\n"
    gcc(source, "-Wall", "-Wextra", "-Werror", "-S")


@pytest.mark.parametrize(
    ("name", "prefix"),
    [
        ("digits", "digits"),
        ("Main Graph", "main_graph"),
        ("", "model"),
        ("7", "model_7"),
        ("irc", "model_irc"),
        ("irc_rt", "model_irc_rt"),
        ("sem", "model_sem"),
        ("pthread_attr", "model_pthread_attr"),
        ("int", "model_int"),
        ("strtok", "model_strtok"),
        ("gmtime", "model_gmtime"),
        ("a\0*/ b", "a_b"),
        ("n" * 1000, "n" * 40),
    ],
)
def test_prefixes(name: str, prefix: str) -> None:
    assert prefix_of(name) == prefix


@pytest.mark.skipif(not shutil.which("nm"), reason="no nm")
def test_no_function_of_the_system_ends_like_the_interface() -> None:
    from irc.backends.c.interface import INTERFACE

    libraries = [p for d in ("/lib", "/usr/lib") for p in Path(d).glob("*-linux-gnu*/lib[cm].so.6")]
    if not libraries:
        pytest.skip("no C library to look at")
    listed = subprocess.run(["nm", "-D", *map(str, libraries)], capture_output=True, text=True, check=True).stdout
    exported = {line.split()[-1].split("@")[0] for line in listed.splitlines() if line.split()}
    assert "sem_init" in exported
    for suffix in INTERFACE:
        taken = {name.removesuffix(f"_{suffix}") for name in exported if name.endswith(f"_{suffix}")}
        assert not [name for name in taken if name and prefix_of(name) == name]


def test_sizes_of_models_are_no_loop_variables() -> None:
    assert not any(LOCAL in p for p in PAYLOADS)
    fresh = str(Dim.fresh())
    hint, _, number = fresh.partition("?")
    model = Dim.symbol(f"{hint}?{int(number) + 1}")
    assert Dim.fresh() != model and Dim.fresh() != model


# ------------------------------------------------------------------------- Python
@slow
@given(st.lists(texts, max_size=30))
def test_python_names_are_different_after_normalising(wanted: list[str]) -> None:
    taken: set[str] = set()
    made = [PyName.of_model(w, taken) for w in wanted]
    assert len({unicodedata.normalize("NFKC", name) for name in made}) == len(made)
    for name in made:
        tree = ast.parse(f"{name} = 1")
        assert isinstance(tree.body[0], ast.Assign) and len(name) < 70
        assert name not in BUILTINS and not name.startswith("_")


@slow
@given(texts)
def test_python_comments_and_docstrings(text: str) -> None:
    source = f"{PyDocstring('', text, ': made.')}\n{PyComment(text)}\nx = 1  {PyComment(text)}\n"
    source.encode()
    tree = ast.parse(source)
    assert len(tree.body) == 2 and str(ast.get_docstring(tree)).endswith(": made.")
    kinds = [t.type for t in tokenize.tokenize(io.BytesIO(source.encode()).readline)]
    assert kinds.count(tokenize.COMMENT) == 2 and source.count("\n") == 3
    assert tokenize.detect_encoding(io.BytesIO(source.encode()).readline)[0] == "utf-8"


@slow
@given(texts)
def test_other_text_is_no_python_name(text: str) -> None:
    try:
        made = PyName(text)
    except ValueError:
        return
    assert made.isascii() and made.isidentifier()


# ------------------------------------------------------------------------- terminals, JSON, HTML
@slow
@given(texts)
def test_a_text_is_one_line_on_a_terminal(text: str) -> None:
    made = TerminalText(text)
    assert made.isprintable() and len(made) < 11 * LONGEST
    assert made == text or not text.isprintable() or len(text) > LONGEST
    made.encode()
    assert TerminalText.lines([text, text]).count("\n") == 1
    coloured = TerminalText.styled([[(text, "bold red"), (text, "")]])
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured).isprintable()


@slow
@given(st.recursive(texts, lambda inner: st.lists(inner) | st.dictionaries(texts, inner), max_leaves=8))
def test_json_is_ascii_that_everybody_reads(value: object) -> None:
    made = JsonText(value, indent=1)
    assert made.isascii() and made.replace("\n", "").isprintable()
    again = json.loads(made)
    json.dumps(again, ensure_ascii=False).encode()  # no unpaired surrogates
    if isinstance(value, str) and not re.search("[\ud800-\udfff]", value):
        assert again == value


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, list[tuple[str, str | None]]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, attrs))

    def handle_data(self, data: str) -> None:
        self.text += data


@slow
@given(texts)
def test_html_shows_the_text(text: str) -> None:
    page = _Page()
    page.feed(HtmlText.element("p", text, HtmlText.element("b", text), title=text))
    page.close()
    shown = "\n".join("".join(c if c.isprintable() else ascii(c)[1:-1] for c in line) for line in text.split("\n"))
    assert [tag for tag, _ in page.tags] == ["p", "b"] and page.tags[0][1] == [("title", shown)]
    assert page.text == shown * 2


@slow
@given(texts, texts)
def test_xml_takes_names_and_texts(name: str, text: str) -> None:
    out = XmlText()
    try:
        tag = XmlName(name)
    except ValueError:
        tag = XmlName("a")
        if not re.fullmatch(r"\{.+\}[^{}]+", name, re.DOTALL):  # a name in a namespace
            with pytest.raises(ValueError):
                out.empty("a", (name, ""))
    out.leaf(tag.rpartition(":")[2], text, ("b", text), ("{urn:" + quote(text, errors="replace") + "}c", "1"))
    root = etree.fromstring(out.encode(), etree.XMLParser(huge_tree=True))
    assert len(root) == 0 and len(root.attrib) == 2


@pytest.mark.parametrize("name", ["{A", "{}A", "{", "{A}", "{A}{b"])
def test_xml_refuses_half_a_namespace(name: str) -> None:
    with pytest.raises(ValueError):
        XmlText().empty("a", (name, ""))


# ------------------------------------------------------------------------- files
@slow
@given(st.lists(texts, max_size=20))
def test_files_stay_in_their_folder(names: list[str]) -> None:
    made = file_names(names)
    assert len({name.lower() for name in made}) == len(names) == len(made)
    for name in made:
        assert isinstance(name, FileName) and len(name) <= 100 and re.fullmatch(r"\w[\w.-]*", name, re.ASCII)
        assert Path(name).name == name and name.partition(".")[0].lower() not in ("con", "nul", "aux", "prn")
    assert file_names(made) == made


@slow
@given(st.lists(texts, max_size=20))
def test_members_of_archives_stay_in_the_folder(names: list[str]) -> None:
    made = member_names(names)
    assert len(set(made)) == len(names)
    with zipfile.ZipFile(io.BytesIO(), "w") as file:
        for name in made:
            file.writestr(name, b"")
        assert file.namelist() == made
    for name in made:
        assert not {"", ".", ".."} & set(name.removeprefix("/").split("/")) and not re.search(r"[\\:\0]", name)


def test_plain_names_stay_as_they_are() -> None:
    assert file_names(["scores", "a.b-c_1", "a/b", "A/B"]) == ["scores", "a.b-c_1", "a_b", "A_B_2"]
    assert member_names(["scores", "/model/fc/Gemm_output_0", "a:0", "../x"]) == [
        "scores",
        "/model/fc/Gemm_output_0",
        "a_0",
        "_._x",
    ]


@pytest.mark.parametrize("name", ["", "..", ".x", "-x", "a/b", "a\\b", "con", "NUL.txt", "x" * 101, "é", "a\0"])
def test_other_text_is_no_file_name(name: str) -> None:
    with pytest.raises(ValueError):
        FileName(name)
