"""A recording as one HTML file that needs no server and loads nothing: `page`."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterable
from importlib.resources import files
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from irc.diagnostics.terminal import visible
from irc.explore.recording import Recording, Step
from irc.ir.pictures.picture import Box, Picture, placed

if TYPE_CHECKING:
    from irc.runtime.limits import Limits
    from irc.runtime.profiling import Profile

DEPTHS = (1, 2, 3)
"""Of the parts of layers' names between slashes, by which a picture is folded."""


def page(recording: Recording, profile: Profile | None = None, limits: Limits | None = None) -> str:
    """Write the page.  profile: of the same functions, in the same order; it adds times and shares of the limits."""
    data = json.dumps(_Data(recording).made(profile, limits), ensure_ascii=True, separators=(",", ":"))
    packed = base64.b64encode(gzip.compress(data.encode(), mtime=0)).decode()
    here = files("irc.explore")
    template, script = (here.joinpath(name).read_text("utf-8") for name in ("page.html", "page.js"))
    return template.replace("@SCRIPT@", script).replace("@DATA@", packed)


class _Data:
    """What the page's script reads; boxes, types and layers are numbered."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.boxes: dict[tuple[Any, ...], int] = {}
        self.shown: list[dict[str, Any]] = []
        self.types: dict[str, int] = {}
        self.layers = {name: k for k, name in enumerate(recording.layers)}

    def made(self, profile: Profile | None, limits: Limits | None) -> dict[str, Any]:
        r = self.recording
        stages: list[dict[str, Any]] = [
            {"name": s.name, "number": s.number, **self.picture(s.picture), "gone": list[int]()} for s in r.stages
        ]
        for before, after in pairwise(stages[:-1]):
            here = set(after["boxes"])
            after["gone"] = [b for b in before["boxes"] if b not in here]
        return {
            "model": visible(r.model.rsplit("/", 1)[-1]),
            "facts": f"{len(r.layers)} layers, {len(r.steps)} functions, arena {r.arena} bytes",
            "about": "A function computes the layers beside it. Click it for loops and C, or a box.",
            "layers": [
                {"name": visible(name), "where": visible(where), "text": text, "joined": r.joined.get(name, "")}
                for name, (where, text) in r.layers.items()
            ],
            "stages": stages,
            "folds": self.folds(),
            "steps": [self.step(s, k, profile, limits) for k, s in enumerate(r.steps)],
            "sources": r.sources,
            "boxes": self.shown,
            "types": list(self.types),
        }

    def numbered(self, layers: Iterable[str]) -> list[int]:
        return [self.layers[name] for name in layers if name in self.layers]

    def box(self, box: Box, members: tuple[int, ...] = ()) -> int:
        key = (box, members)
        if key not in self.boxes:
            self.boxes[key] = len(self.shown)
            row: dict[str, Any] = {"label": box.label, "name": visible(box.name), "text": box.text, "width": box.width}
            row["layers"] = self.numbered(box.layers)
            self.shown.append(row | ({"members": members} if members else {}))
        return self.boxes[key]

    def picture(self, picture: Picture, members: list[tuple[int, ...]] | None = None) -> dict[str, Any]:
        inside = members or [()] * len(picture.boxes)
        return {
            "boxes": [self.box(b, m) for b, m in zip(picture.boxes, inside, strict=True)],
            "x": [round(x) for x in picture.x],
            "layer": picture.layer,
            "lines": [
                [e.start, e.end, self.types.setdefault(e.label, len(self.types)), [round(x) for x in e.bends]]
                for e in picture.lines
            ],
        }

    def step(self, step: Step, k: int, profile: Profile | None, limits: Limits | None) -> dict[str, Any]:
        from irc.runtime.profiling import family

        row: dict[str, Any] = {
            "name": visible(step.name),
            "label": " + ".join(dict.fromkeys(map(family, step.kernels))) or "loops",
            "layers": self.numbered(step.layers),
            "kernels": step.kernels,
            "loops": step.loops,
            "c": step.c,
            "tensors": step.tensors,
        }
        if profile is not None:
            timed = profile.steps[k]
            parts = [0.0]
            if limits and timed.seconds:
                work = min(timed.flops or 0, timed.executed or 0)
                parts = [work / timed.seconds / limits.flops, (timed.bytes or 0) / timed.seconds / limits.bandwidth]
            limit = min(max(parts), 1.0) if limits else None
            row["time"] = {"seconds": timed.seconds, "share": timed.seconds / profile.seconds, "limit": limit}
        return row

    # ------------------------------------------------------------------------- folding
    def folds(self) -> list[dict[str, Any]]:
        """Make the picture of the model as read, with the layers of a function, or of a scope, as one box."""
        picture = self.recording.stages[0].picture
        function = {layer: s.name for s in self.recording.steps for layer in s.layers}
        by_function = [function.get(b.layers[0], "") if b.layers else "" for b in picture.boxes]
        found = {"layers of a function": by_function}
        for depth in DEPTHS:
            scopes = [scope(b, depth) for b in picture.boxes]
            if len({*scopes} - {""}) > 1:
                found[f"scopes of names, depth {depth}"] = scopes
        return [{"name": name, **self.folded(picture, groups)} for name, groups in found.items()]

    def folded(self, picture: Picture, groups: list[str]) -> dict[str, Any]:
        """Make one box of all boxes of a group, in the place of the first; boxes of group "" stay."""
        places: dict[str, int] = {}
        members: list[list[int]] = []
        where: list[int] = []
        for k, name in enumerate(groups):
            where.append(places.setdefault(name, len(members)) if name else len(members))
            if where[-1] == len(members):
                members.append([])
            members[where[-1]].append(k)
        boxes: list[Box] = []
        for part in members:
            first = picture.boxes[part[0]]
            if len(part) == 1:
                boxes.append(first)
                continue
            layers = tuple(dict.fromkeys(n for k in part for n in picture.boxes[k].layers))
            labels = " · ".join(dict.fromkeys(picture.boxes[k].label for k in part))
            boxes.append(
                Box(f"{len(part)}: {labels}"[:60], groups[part[0]], f"{len(part)} operations: {labels}", layers)
            )
        ends = ((where[e.start], where[e.end], e.label) for e in picture.lines)
        made = placed(boxes, [(min(a, b), max(a, b), label) for a, b, label in ends if a != b])
        inside = [tuple(self.box(picture.boxes[k]) for k in part) if len(part) > 1 else () for part in members]
        return self.picture(made, inside)


def scope(box: Box, depth: int) -> str:
    """Name the scope of a box's first layer: so many parts of its name, which slashes or dots divide; "" if none."""
    if not box.layers:
        return ""
    name = box.layers[0].lstrip("/")
    parts = name.replace(".", "/").split("/") if "/" in name or "." in name else [name]
    return "/".join(parts[:depth]) if len(parts) > depth else ""
