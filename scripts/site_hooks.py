"""Fill the documentation site with what is not a page of `docs`: hooks of mkdocs, named in mkdocs.yml.

- Each code of a finding that a broken model of `tests/diagnostics` shows gets a page with model and finding.
- Links to files beside `docs` lead to the repository.
- Pictures, loops, C and headers of the samples are made anew.
"""

from __future__ import annotations

import re
import tomllib
from collections import defaultdict
from functools import cache
from pathlib import Path
from posixpath import normpath
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

import irc
from irc import driver
from irc.explore.recording import Recording, record
from irc.ir.pictures.svg import svg

ROOT = Path(__file__).resolve().parent.parent
MODELS = ROOT / "tests" / "diagnostics"
LANGUAGES = {"xml": "xml", "onnx": "text", "pb": "text", "bytes": "text", "hex": "text", "size": "text"}
MARK = "===== expected\n"
LINK = re.compile(r"\]\(((?:\.\./)+[^)#\s]*)(#[^)\s]*)?\)")
LONGEST = 4000
"""Characters of C that a reader is shown."""
PICTURES = {"as read": "as read", "select-kernels": "after select-kernels"}
SECTION = re.compile(r"^(### (IRC\d{4}): .*)$", re.MULTILINE)


def repository() -> str:
    """Read the address of the repository from pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return str(project["urls"]["Repository"]).rstrip("/")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for each code that broken models show."""
    for code, cases in broken_models().items():
        page = f"diagnostics/{code}.md"
        files.append(File.generated(config, page, content=broken_page(code, cases)))
    for stage in recorded("digits/digits.xml").stages:
        if stage.name in PICTURES:
            files.append(File.generated(config, picture_file(stage.name), content=svg(stage.picture)))
    return files


def picture_file(stage: str) -> str:
    """Name the file of the picture of a stage, below the site."""
    return f"pictures/{stage.replace(' ', '-')}.svg"


@cache
def recorded(sample: str) -> Recording:
    """Compile a sample to sources, and keep what comes up on the way."""
    options = driver.CompileOptions("c", target="x86-64-v3")
    return record(irc.load(ROOT / "samples" / sample), options)


def made_texts(page: str) -> dict[str, tuple[str, str]]:
    """Make what stands for the comments of a page: language and text by comment, or "picture" and the stage."""
    if page == "how-it-works.md":
        steps = [s for s in recorded("encoder/encoder.xml").steps if not s.kernels and "for " in s.loops]
        shown = max((s for s in steps if len(s.c) < LONGEST), key=lambda s: len(s.layers))
        pictures = {f"picture of the graph {PICTURES[name]}": ("picture", name) for name in PICTURES}
        return pictures | {"loops": ("text", shown.loops), "c": ("c", shown.c)}
    if page == "c.md":
        options = driver.CompileOptions("c", target="x86-64-v3", name="digits")
        made = driver.sources(irc.load(ROOT / "samples" / "digits" / "digits.xml"), options)
        runtime = (ROOT / "irc" / "runtime" / "irc_rt.h").read_text("utf-8")
        return {"header": ("c", str(made.files["digits.h"])), "runtime": ("c", runtime)}
    return {}


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Point links out of `docs` to the repository, and sections of codes to their broken models."""
    folder = Path("docs", page.file.src_uri).parent.as_posix()

    def outside(found: re.Match[str]) -> str:
        path = normpath(f"{folder}/{found[1]}")
        if path.startswith("docs/") or path == "docs":
            return found[0]
        kind = "tree" if (ROOT / path).is_dir() else "blob"
        return f"]({repository()}/{kind}/main/{path}{found[2] or ''})"

    markdown = LINK.sub(outside, markdown)
    for comment, (language, text) in made_texts(page.file.src_uri).items():
        made = f"![{comment}]({picture_file(text)})" if language == "picture" else fenced(text, language)
        markdown = markdown.replace(f"<!-- {comment} -->", made)
    if page.file.src_uri == "diagnostics.md":
        shown = broken_models()
        link = "\n\n[A model that shows it](diagnostics/{}.md)"
        markdown = SECTION.sub(
            lambda m: f"{m[1]} {{: #{m[2].lower()} }}{link.format(m[2]) if m[2] in shown else ''}", markdown
        )
    return markdown


def broken_models() -> dict[str, list[Path]]:
    """Find the broken models of each code."""
    found: dict[str, list[Path]] = defaultdict(list)
    for path in sorted(MODELS.glob("IRC*.txt")):
        found[path.name[:7]].append(path)
    return found


def broken_page(code: str, cases: list[Path]) -> str:
    """Write the page of one code: every model that shows it, and what irc says of it."""
    parts = [f"# {code}\n\nWhat it means, and how to mend it: [the list of diagnostics](../diagnostics.md).\n"]
    for path in cases:
        name, kind, _ = path.name.rsplit(".", 2)
        model, expected = path.read_text("utf-8").split(MARK, 1)
        title = name.removeprefix(f"{code}-").replace("-", " ")
        shown, said = fenced(model, LANGUAGES[kind]), fenced(expected, "text")
        parts.append(f"## {title.capitalize()}\n\n{shown}\nirc says:\n\n{said}")
    return "\n".join(parts)


def fenced(text: str, language: str) -> str:
    """Put a text into a block of code, whatever fences it holds itself."""
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}\n"
