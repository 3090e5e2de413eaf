"""The page that `irc profile --html` writes: the run as a bar, function by function, and tables that can be sorted."""

from __future__ import annotations

from typing import LiteralString

from irc.cli.profile_report import COLUMNS, Report, Row, kernel_of, kind_of, layers_of, rows, tensors_of, titled
from irc.diagnostics.html_text import HtmlText
from irc.diagnostics.terminal import visible

FIELDS = ("seconds", "share", "calls", "flops_per_second", "of_peak", "bytes_per_second", "of_bandwidth")
"""The figures that COLUMNS write, by which a table is sorted."""
LABELLED, MOST = 0.02, 26
"""Share of the run from which a part of the bar has a label; characters that fit there."""
SHOWN = 3
"""Calls of a row whose tensors are listed."""


def page(report: Report) -> HtmlText:
    """Make a page that needs nothing else: the run as a bar, the tables of layers and of kernels, and the notes."""
    colours = {kind: f"hsl({47 * k % 360} 65% 62%)" for k, kind in enumerate(_kinds(report))}
    legend = [
        HtmlText.element("span", _coloured("i", colours[kind]), f"{kind} {100 * share:.1f} %")
        for kind, share in _kinds(report).items()
    ]
    tables = [
        _table(report, title, found, colours)
        for title, found in (("Layers", report.layers), ("Kernels and generated functions", report.kernels))
    ]
    title = f"{report.model}: profile"
    parts = {
        "title": HtmlText.element("title", title),
        "head": HtmlText.element("h1", title),
        "heading": HtmlText.element("div", *(HtmlText.element("p", line) for line in report.heading())),
        "legend": HtmlText.element("p", *legend, id="legend"),
        "bar": HtmlText.element("div", *_bar(report, colours), id="run"),
        "tables": HtmlText.element("div", *tables),
        "notes": HtmlText.element("div", *(HtmlText.element("p", line) for line in report.notes()), id="notes"),
    }
    return HtmlText.page(_PAGE, parts)


def _kinds(report: Report) -> dict[str, float]:
    """List the families of kernels with their part of the time, the longest first."""
    whole = report.total.seconds or 1.0
    return {r.name: r.seconds / whole for r in rows(report.profile.steps, kind_of)}


def _bar(report: Report, colours: dict[str, str]) -> list[HtmlText]:
    """Draw the functions in their order, each as wide as its time; what it is shows when one points at it."""
    whole = report.total.seconds or 1.0
    parts: list[HtmlText] = []
    for s in report.profile.steps:
        (row,) = rows([s], layers_of)
        figures = [f"{n}: {c}" for n, c in zip(COLUMNS, report.cells(row), strict=True) if c]
        told = "\n".join(map(visible, filter(None, [layers_of(s), kernel_of(s), tensors_of(s), *figures])))
        share, name = s.seconds / whole, layers_of(s)
        label = (name if len(name) <= MOST else f"{name[: MOST - 1]}…") if share > LABELLED else ""
        style = f"width:{100 * share:.4f}%;background:{colours[kind_of(s)]}"
        parts.append(HtmlText.element("div", label, style=style, title=told))
    return parts


def _table(report: Report, title: str, found: list[Row], colours: dict[str, str]) -> HtmlText:
    """Make a table of rows, with the value by which a cell is sorted where its text does not tell."""
    buttons = [HtmlText.element("button", name, type="button") for name in (*COLUMNS, "tensors", "name")]
    head = HtmlText.element("tr", *(HtmlText.element("th", b) for b in buttons))
    longest = max((r.seconds for r in found), default=0.0) or 1.0
    body: list[HtmlText] = []
    for r in found:
        figures = report.figures(r)
        cells = [
            HtmlText.element("td", text, **{"data-value": "" if figures[name] is None else repr(figures[name])})
            for name, text in zip(FIELDS, report.cells(r), strict=True)
        ]
        rest = len(r.tensors) - SHOWN
        lines = [*r.tensors[:SHOWN], *([f"and {rest} more"] if rest > 0 else [])]
        tensors = HtmlText.element("td", *(HtmlText.element("div", line) for line in lines), **{"class": "tensors"})
        bar = _coloured("i", colours[r.kind], f"width:{100 * r.seconds / longest:.2f}%;")
        name = HtmlText.element("td", bar, HtmlText.element("span", titled(r)), **{"class": "name"})
        body.append(HtmlText.element("tr", *cells, tensors, name))
    table = HtmlText.element("table", HtmlText.element("thead", head), HtmlText.element("tbody", *body))
    return HtmlText.element("div", HtmlText.element("h2", title), table)


def _coloured(tag: LiteralString, colour: str, more: str = "") -> HtmlText:
    return HtmlText.element(tag, style=f"{more}background:{colour}")


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">{title}<style>
:root {{ color-scheme: light dark }}
body {{ font: 14px system-ui, sans-serif; margin: 2em }}
p {{ margin: .2em 0; overflow-wrap: anywhere }} h1 {{ font-size: 1.3em; overflow-wrap: anywhere }}
h2 {{ font-size: 1.1em; margin: 1.5em 0 .4em }}
#run {{ display: flex; height: 13em; margin: 1em 0; border: 1px solid #888 }}
#run div {{ box-sizing: border-box; overflow: hidden; white-space: nowrap; font-size: 11px; padding: .3em 0 0 .2em;
  border-right: 1px solid #fff8; writing-mode: vertical-rl; color: #222 }}
#run div:hover {{ filter: brightness(.8) }}
#legend span {{ margin-right: 1.2em }}
#legend i {{ display: inline-block; width: .8em; height: .8em; margin-right: .3em }}
table {{ border-collapse: collapse; width: 100% }}
th, td {{ text-align: right; padding: .1em .6em; white-space: nowrap; vertical-align: top }}
th {{ border-bottom: 1px solid #888; position: sticky; top: 0; background: Canvas }}
th button {{ font: inherit; font-weight: 600; padding: 0; border: 0; background: none; color: inherit;
  cursor: pointer }}
th[aria-sort=descending] button::after {{ content: " ▾" }} th[aria-sort=ascending] button::after {{ content: " ▴" }}
td.tensors, td.name, th:nth-last-child(-n+2) {{ text-align: left; white-space: normal; overflow-wrap: anywhere }}
td.tensors {{ font-size: 12px; min-width: 16em }} td.name {{ width: 50%; position: relative }}
td.name i {{ position: absolute; left: 0; top: 10%; height: 80%; opacity: .35 }} td.name span {{ position: relative }}
#notes {{ margin-top: 1.5em; opacity: .75 }}
</style></head><body>
{head}{heading}
{legend}
{bar}
{tables}
{notes}
<script>
for (const table of document.querySelectorAll("table")) {{
  const body = table.tBodies[0], heads = [...table.tHead.rows[0].cells];
  const value = (row, k) => {{
    const cell = row.cells[k];
    if (cell.dataset.value === undefined) return cell.textContent;
    return cell.dataset.value === "" ? -Infinity : Number(cell.dataset.value);
  }};
  heads.forEach((head, k) => head.firstElementChild.addEventListener("click", () => {{
    const words = k >= heads.length - 2;
    const down = head.ariaSort ? head.ariaSort === "ascending" : !words;
    heads.forEach(other => other.removeAttribute("aria-sort"));
    head.ariaSort = down ? "descending" : "ascending";
    const sign = down ? -1 : 1;
    const rows = [...body.rows].sort((a, b) => {{
      const x = value(a, k), y = value(b, k);
      return sign * (words ? x.localeCompare(y, undefined, {{numeric: true}}) : x < y ? -1 : x > y ? 1 : 0);
    }});
    body.append(...rows);
  }}));
}}
</script>
</body></html>
"""
