"""A picture of a graph as an SVG file: `svg`."""

from __future__ import annotations

from irc.diagnostics.html_text import HtmlText
from irc.ir.pictures.picture import LAYER, Picture, shortened

HEIGHT, EDGE, MOST = 40, 20, 30
"""Units: of a box, around the picture; characters of a label."""
STYLE = (
    ".irc text{font:11px system-ui,sans-serif;text-anchor:middle;fill:#445}"
    ".irc .op{font-weight:600;font-size:12px;fill:#1b1f24}.irc rect{fill:#e8ecf3;stroke:#aab2c0}"
    ".irc .port{fill:#f3e3f7}.irc path{fill:none;stroke:#aab2c0;stroke-width:1.2}"
)
"""The class keeps it from the page around the picture."""


def svg(picture: Picture) -> HtmlText:
    """Draw a picture: boxes from top to bottom, the type of a tensor on the line when one points at it."""
    left = min((x - b.width / 2 for x, b in zip(picture.x, picture.boxes, strict=True)), default=0.0) - EDGE
    right = max((x + b.width / 2 for x, b in zip(picture.x, picture.boxes, strict=True)), default=0.0) + EDGE
    height = (max(picture.layer, default=0) + 1) * LAYER - (LAYER - HEIGHT) + 2 * EDGE

    def middle(x: float, layer: int) -> tuple[float, float]:
        return x - left, EDGE + layer * LAYER + HEIGHT / 2

    parts = [HtmlText.element("style", HtmlText(STYLE))]
    for line in picture.lines:
        first, last = picture.layer[line.start], picture.layer[line.end]
        points = [middle(picture.x[line.start], first), *(middle(x, first + 1 + k) for k, x in enumerate(line.bends))]
        points.append(middle(picture.x[line.end], last))
        x, y = points[0]
        y += HEIGHT / 2
        d = [f"M{x:.0f} {y:.0f}"]
        for k, (to, end) in enumerate(points[1:], 2):
            end -= HEIGHT / 2 if k == len(points) else 0
            half = (y + end) / 2
            d.append(f"C{x:.0f} {half:.0f} {to:.0f} {half:.0f} {to:.0f} {end:.0f}")
            x, y = to, end
        parts.append(HtmlText.element("path", HtmlText.element("title", line.label), d="".join(d)))
    for box, at, layer in zip(picture.boxes, picture.x, picture.layer, strict=True):
        x, y = middle(at, layer)
        kind = "port" if box.label.startswith(("input", "output")) else "node"
        frame = {"x": f"{x - box.width / 2:.0f}", "y": f"{y - HEIGHT / 2:.0f}", "width": f"{box.width:.0f}"}
        parts.append(
            HtmlText.element(
                "g",
                HtmlText.element("title", box.text),
                HtmlText.element("rect", **frame, height=str(HEIGHT), rx="5", **{"class": kind}),
                HtmlText.element("text", shortened(box.label, MOST), x=f"{x:.0f}", y=f"{y - 4:.0f}", **{"class": "op"}),
                HtmlText.element("text", shortened(box.name, MOST), x=f"{x:.0f}", y=f"{y + 12:.0f}"),
            )
        )
    size = {
        "width": f"{right - left:.0f}",
        "height": f"{height:.0f}",
        "viewBox": f"0 0 {right - left:.0f} {height:.0f}",
    }
    return HtmlText.element("svg", *parts, xmlns="http://www.w3.org/2000/svg", **size, **{"class": "irc"})
