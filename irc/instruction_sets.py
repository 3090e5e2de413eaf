"""Artefacts for several instruction sets: the model is compiled for each, and the manifests have to agree."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from irc.backends.c import instruction_sets as sets
from irc.backends.c.names import prefix_of
from irc.runtime.artifact import Draft
from irc.toolchain.c_compiler import Target, compiler_name

if TYPE_CHECKING:
    from irc.backends.c.files import Files
    from irc.driver import CompileOptions

SAME = ("inputs", "outputs", "symbols", "limits", "states", "demands")
"""What the manifest of the whole takes from that of the first set."""


def sources_of_sets(
    options: CompileOptions, target: Target, name: str, generate: Callable[[CompileOptions, Target], Draft]
) -> Draft:
    """Generate the sources for each instruction set of a target, and one interface, which chooses."""
    prefix, main = options.name or prefix_of(name), options.name or "model"
    weights = f"{options.name}_weights.bin" if options.name else "weights.bin"
    names = [sets.member_prefix(prefix, one.name) for one in target.sets]
    drafts = [generate(replace(options, name=name), one) for one, name in zip(target.sets, names, strict=True)]
    rows = zip(target.sets, names, drafts, strict=True)
    members = [sets.Member(one.name, name, cast("Files", dict(draft.files)), one.flags) for one, name, draft in rows]
    first, *others = [draft.manifest for draft in drafts]
    differ = [key for key in SAME for other in others if other[key] != first[key]]
    assert not differ, f"the code for {target.name} differs in {differ}"
    arenas: list[Any] = [m["arena_bytes"] for m in (first, *others)]
    most = max(arenas) if all(isinstance(n, int) for n in arenas) else arenas[0]
    manifest: dict[str, Any] = first | {"prefix": prefix, "weights": weights, "arena_bytes": most}
    manifest["target"] = manifest["target"] | {"name": target.name}
    manifest["memory"] = _memory([draft.manifest["memory"] for draft in drafts])
    files = sets.joined(prefix, main, weights, members, target.flags)
    if options.name is not None:
        files |= sets.build_files(prefix, weights, members, files, compiler_name(options.target))
    return Draft(dict(files), manifest)


def _memory(found: list[dict[str, Any]]) -> dict[str, Any]:
    """Join what each set needs: weights of all stand in the file, one of the contexts is made."""
    contexts: list[int | None] = [m["context_bytes"] for m in found]
    known = [n for n in contexts if n is not None]
    largest = found[contexts.index(max(known))] if known else found[0]
    return largest | {"weights_bytes": sum(m["weights_bytes"] for m in found)}
