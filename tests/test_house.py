"""House rules: budgets, layers, names, and what every code and operation must say."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import networkx as nx
import pytest

from irc.diagnostics.codes import all_codes

ROOT = Path(__file__).resolve().parent.parent
FILE_LINES, FUNCTION_LINES = 600, 60
SOURCES = sorted(p for folder in ("irc", "tests", "scripts", "samples", "bench") for p in (ROOT / folder).rglob("*.py"))
PACKAGE = [p for p in SOURCES if p.is_relative_to(ROOT / "irc")]

LAYERS = (
    ("irc.version", "irc.shared_name", "irc.garbage_collection", "irc.diagnostics", "irc.arrays", "irc.files"),
    ("irc.ir",),
    ("irc.expr", "irc.functions", "irc.traversal"),
    ("irc.loops.ir", "irc.loops.builder"),
    ("irc.formats.document",),
    ("irc.opdef",),
    ("irc.ops",),
    ("irc.formats", "irc.border"),
    ("irc.kernels",),
    ("irc.passes",),
    ("irc.fusion",),
    ("irc.selection", "irc.layout"),
    ("irc.loops",),
    ("irc.toolchain", "irc.backend_choice"),
    ("irc.backends",),
    ("irc.runtime",),
    (
        "irc.editing",
        "irc.conversion",
        "irc.pipelines",
        "irc.driver",
        "irc.instruction_sets",
        "irc.memory_limit",
        "irc.tuning",
    ),
    ("irc.comparison", "irc.explore"),
    ("irc.backend",),
    ("irc.cli",),
    ("irc.__main__",),
)
"""From the bottom up; loading a module may import its own layer and those below.  The longest name decides."""


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def test_files_are_short() -> None:
    long = {relative(p): n for p in SOURCES if (n := len(p.read_text("utf-8").splitlines())) > FILE_LINES}
    assert not long, f"files over {FILE_LINES} lines: {long}"


def test_functions_are_short() -> None:
    long = {
        f"{relative(p)}:{node.lineno} {node.name}": lines
        for p in SOURCES
        for node in ast.walk(tree(p))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (lines := (node.end_lineno or 0) - node.lineno + 1) > FUNCTION_LINES
    }
    assert not long, f"functions over {FUNCTION_LINES} lines: {long}"


def test_no_junk_drawers() -> None:
    junk = {"utils", "util", "misc", "common", "helpers", "helper"}
    found = [relative(p) for p in SOURCES if junk & {p.stem, *p.relative_to(ROOT).parts[:-1]}]
    assert not found, f"name a module after what is in it: {found}"


def test_generated_documentation_is_current() -> None:
    command = [sys.executable, "scripts/generate_docs.py", "--check"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_readme_and_ci_run_the_same_tests() -> None:
    (command,) = re.findall(r"## Tests\n\n```\n(.*?)\n```", (ROOT / "README.md").read_text("utf-8"))
    assert command in (ROOT / ".ci" / "run").read_text("utf-8").splitlines()


def test_links_in_documentation_lead_somewhere() -> None:
    names = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "samples/README.md", "bench/README.md")
    pages = [ROOT / name for name in names]
    pages += (ROOT / "docs").rglob("*.md")
    dead = [
        f"{relative(page)}: {target}"
        for page in pages
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text("utf-8"))
        if not (page.parent / target).exists()
    ]
    assert not dead


@pytest.mark.parametrize("name", ["files", "data", "function", "interface", "shared", "sizes"])
def test_comments_of_generated_c_are_made_in_one_place(name: str) -> None:
    """Text of a model goes into comments as `CComment`s: nobody puts values between /* and */ by himself."""
    own = {"ONLY_KERNELS", "self._flags", "_flags"}
    for node in ast.walk(tree(ROOT / "irc" / "backends" / "c" / f"{name}.py")):
        if isinstance(node, ast.JoinedStr) and "/*" in ast.unparse(node):
            values = [v.value for v in node.values if isinstance(v, ast.FormattedValue)]
            after = ast.unparse(node).partition("/*")[2].partition("*/")[0]
            inside = [v for v in values if f"{{{ast.unparse(v)}}}" in after]
            names = {ast.unparse(v.func if isinstance(v, ast.Call) else v) for v in inside}
            assert names <= own, f"{name}.py:{node.lineno}: use remark() or block_comment()"


def test_only_the_console_prints() -> None:
    """What the command line says goes through `irc.cli.console`, and its JSON through `JsonText`."""
    for path in (ROOT / "irc" / "cli").glob("*.py"):
        calls = {ast.unparse(n.func) for n in ast.walk(tree(path)) if isinstance(n, ast.Call)}
        allowed = {"print"} if path.stem == "console" else {"json.dumps"} if path.stem == "feeds" else set[str]()
        used = calls & {"print", "click.echo", "click.secho", "json.dumps", "json.dump", "sys.stdout.write"}
        assert used <= allowed, f"{relative(path)} calls {used - allowed}"


# ------------------------------------------------------------------------------ layers
def layer(module: str) -> int | None:
    """The layer of a module; None for the package itself, whose imports are lazy."""
    found = [
        (len(prefix), number)
        for number, prefixes in enumerate(LAYERS)
        for prefix in prefixes
        if module == prefix or module.startswith(prefix + ".")
    ]
    return max(found)[1] if found else None


def loaded_imports(path: Path) -> set[str]:
    """The modules of irc that loading this one imports (not those inside functions or for type checking)."""
    found: set[str] = set()
    stack: list[ast.stmt] = list(tree(path).body)
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            stack += node.orelse
        elif isinstance(node, ast.If | ast.Try | ast.With | ast.ClassDef):
            stack += [n for field in ("body", "orelse", "finalbody") for n in getattr(node, field, [])]
    return {name for name in found if name.split(".")[0] == "irc"}


@pytest.mark.parametrize("path", PACKAGE, ids=relative)
def test_imports_point_downwards(path: Path) -> None:
    own = layer(module_of(path))
    if own is None:
        assert path == ROOT / "irc" / "__init__.py", f"{relative(path)} belongs to no layer of this test"
        return
    upwards = [name for name in loaded_imports(path) if (there := layer(name)) is not None and there > own]
    assert not upwards, f"{relative(path)} imports upwards: {upwards}"


def all_imports(path: Path) -> set[str]:
    """The modules of irc that this one imports whenever it does: also inside functions, not for type checking only."""
    found: set[str] = set()
    stack: list[ast.AST] = [tree(path)]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        only_types = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        stack += node.orelse if isinstance(node, ast.If) and only_types else ast.iter_child_nodes(node)
    return {name for name in found if name.split(".")[0] == "irc"}


def import_graph() -> nx.DiGraph[str]:
    """An edge from each module of irc to every one that it imports."""
    modules = {module_of(path): path for path in PACKAGE}
    graph: nx.DiGraph[str] = nx.DiGraph()
    for module, path in modules.items():
        for name in all_imports(path):
            imported = name if name in modules else name.rpartition(".")[0]
            if imported in modules and imported != module and not module.startswith(imported + "."):
                graph.add_edge(module, imported)
    return graph


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Imports inside functions count: they would only hide the circle."""
    circles = [sorted(part) for part in nx.strongly_connected_components(import_graph()) if len(part) > 1]
    assert not circles


def test_late_imports_point_downwards() -> None:
    """Imports inside functions save time when irc starts; they are no way around the layers."""
    for path in PACKAGE:
        own = layer(module_of(path))
        upwards = [name for name in all_imports(path) if own is not None and (layer(name) or 0) > own]
        assert not upwards, f"{relative(path)} imports upwards: {upwards}"


# ------------------------------------------------------------------------------- texts
def test_nothing_names_the_place_it_was_written_at() -> None:
    """The project stands alone: no path of a developer's machine in any tracked text."""
    try:
        command = ["git", "ls-files", "-z"]
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    except FileNotFoundError:  # no git, so no repository either
        listed = ""
    files = [ROOT / name for name in listed.split("\0") if name] or SOURCES
    private = re.compile(r"/(?:work|root)/|/(?:opt|home)/(?:dev|\w+/\.pyenv)|\bshared/(?:design|contract|style)\b")
    found = []
    for path in files:
        if path.is_file() and path.suffix not in (".npz", ".npy", ".onnx", ".bin"):
            text = path.read_text("utf-8", errors="replace")
            found += [f"{relative(path)}: {m[0]}" for m in private.finditer(text) if path != Path(__file__)]
    assert not found


@pytest.mark.parametrize("code", all_codes().values(), ids=lambda c: c.id)
def test_every_code_is_explained(code: object) -> None:
    empty = [name for name in ("title", "message", "why", "example", "fix", "help") if not getattr(code, name).strip()]
    assert not empty, f"{code} leaves empty: {empty}"


def test_codes_stand_in_the_file_of_their_range() -> None:
    ranges = {"container": "1", "operation": "2", "shape": "3", "conversion": "4", "command": "4", "lowering": "5"}
    ranges |= {"runtime": "6", "internal": "9"}
    for path in sorted((ROOT / "irc/diagnostics/codes").glob("*.py")):
        wanted = ranges.get(path.stem.split("_")[0])
        ids = re.findall(r'"IRC(\d{4})"', path.read_text("utf-8"))
        if path.stem != "__init__":
            assert wanted, f"{path.name}: name the file after its range"
            assert all(i[0] == wanted for i in ids), f"{path.name} holds codes of another range: {ids}"


NO_VERB = (
    "A|All|An|At|Both|Each|Every|For|From|How|In|It|No|Nothing|Of|On|One|Some|That|The|These|This|Those|Two|Under|What|When"
    "|Where|Whether|Which|Who|Why|With|Within"
)
VERB = re.compile(rf"(?!(?:{NO_VERB})\b)[A-Z][a-z]*(?:ss|[a-rt-z])\b")
"""What may be a verb in the imperative: a plain word, neither one of those nor a plural."""
IMPERATIVE = (
    *("passes", "loops", "layout", "selection", "fusion", "runtime", "kernels"),
    *("backends/c", "backends/numpy", "toolchain"),
)
"""Folders of irc whose functions say in the imperative what they do; a property says what it is."""


@pytest.mark.parametrize("folder", IMPERATIVE)
def test_functions_are_described_in_the_imperative(folder: str) -> None:
    found = {
        f"{relative(path)}:{node.lineno} {node.name}": text
        for path in sorted((ROOT / "irc" / folder).rglob("*.py"))
        for node in ast.walk(tree(path))
        if isinstance(node, ast.FunctionDef)
        and (text := ast.get_docstring(node))
        and not any("property" in ast.unparse(d) for d in node.decorator_list)
    }
    assert found
    assert not {place: text for place, text in found.items() if not VERB.match(text)}


# -------------------------------------------------------------------------- operations
def declared_names() -> Counter[str]:
    """Names of operation classes and table rows, as the family files declare them."""
    names: Counter[str] = Counter()
    for path in (ROOT / "irc/ops").glob("*.py"):
        for node in tree(path).body:
            if isinstance(node, ast.ClassDef) and any("op" in ast.dump(d) for d in node.decorator_list):
                names[node.name] += 1
    return names


def test_each_operation_is_declared_once() -> None:
    twice = {name: n for name, n in declared_names().items() if n > 1}
    assert not twice


def test_each_operation_says_what_it_computes() -> None:
    from irc.opdef.registry import OPS, load_all

    load_all()
    silent = [name for name, cls in OPS.items() if not (cls.__doc__ or "").strip()]
    assert not silent, f"operations without a docstring: {silent}"


def test_each_operation_belongs_to_a_format() -> None:
    """Operations that only passes make are the exception, and say so in their docstring."""
    from irc.opdef.registry import OPS, load_all

    load_all()
    nowhere = [n for n, c in OPS.items() if not c.onnx and not c.openvino and not c.__module__.endswith(".opaque")]
    unexplained = [n for n in nowhere if not re.search(r"compil|internal|passes", OPS[n].__doc__ or "")]
    assert not unexplained, f"operations with no form and no word why: {unexplained}"


def test_each_kernel_is_compiled_for_other_processors() -> None:
    """`pytest -m full` compiles every kernel for every instruction set: it needs a problem for each."""
    from irc import kernels
    from tests.kernels.test_every_compiler import REGISTERED, TARGETS
    from tests.support.kernels import variants

    unsolved = [c.__name__ for c in REGISTERED if not any(any(variants(c, isa)) for isa in kernels.ISAS.values())]
    assert not unsolved, f"PROBLEMS of tests/support/kernels.py holds none that these solve: {unsolved}"
    assert set(kernels.ISAS) == set(TARGETS)
