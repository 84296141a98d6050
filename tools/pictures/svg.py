"""Make an SVG of a picture's description.

A description is TOML: `title` and `alt`, `size` in pixels, and lists of `box`, `arrow`, `text` and `table`. A point is
`[x, y]` or the name of a box and its side, as `"planner.right"`. The colours follow the reader's preference for light
or dark, and every picture paints its own background.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

STYLE = """\
.back{fill:#ffffff;stroke:#c9ced6}.box{fill:#f1f4f9;stroke:#5b6b82}.soft{fill:none;stroke:#9aa6b8;stroke-dasharray:5 4}
.strong{fill:#dbe7fb;stroke:#2f5fb3}.good{fill:#dcf1e1;stroke:#2f8048}.bad{fill:#fbe3df;stroke:#b3452f}
.head{fill:#e4e9f1;stroke:#9aa6b8}.cell{fill:none;stroke:#9aa6b8}
text{fill:#1d2733;font:14px system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
.bold{font-weight:600}.small{font-size:12px}.faint{fill:#5b6b82}
.mono{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;font-size:12.5px}
.line{stroke:#5b6b82;fill:none;stroke-width:1.5}.dash{stroke-dasharray:5 4}.tip{fill:#5b6b82}
@media (prefers-color-scheme:dark){.back{fill:#1b2028;stroke:#3a4453}.box{fill:#28303c;stroke:#8fa0b8}
.soft{stroke:#66748a}.strong{fill:#24395e;stroke:#86aef0}.good{fill:#1f4029;stroke:#7cc792}
.bad{fill:#4d2a24;stroke:#ea9a88}.head{fill:#323c4a;stroke:#66748a}.cell{stroke:#66748a}text{fill:#e6eaf0}
.faint{fill:#a5b1c2}.line{stroke:#a5b1c2}.tip{fill:#a5b1c2}}"""

LINE = 18
"""Pixels between two lines of text."""
ROW = 24
"""Height of a table's row in pixels."""

Table = Mapping[str, Any]
Point = tuple[float, float]


def drawn(source: str) -> str:
    """Return the SVG of a description in TOML. Raises ValueError for an arrow to a box or side that is not there."""
    picture = tomllib.loads(source)
    width, height = picture["size"]
    boxes = {box["id"]: box for box in picture.get("box", ()) if "id" in box}
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'role="img" aria-labelledby="title desc">',
        f'<title id="title">{escape(picture["title"])}</title>',
        f'<desc id="desc">{escape(picture["alt"])}</desc>',
        f"<style>{STYLE}</style>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
        'orient="auto-start-reverse"><path class="tip" d="M0 0 8 4 0 8z"/></marker></defs>',
        f'<rect class="back" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8"/>',
    ]
    for box in picture.get("box", ()):
        parts += _box(box)
    for table in picture.get("table", ()):
        parts += _table(table)
    for arrow in picture.get("arrow", ()):
        parts += _arrow(arrow, boxes)
    for text in picture.get("text", ()):
        x, y = text["at"]
        parts += _lines(text["text"], x, y, text.get("kind", ""), text.get("anchor", "start"))
    return "\n".join([*parts, "</svg>", ""])


def _box(box: Table) -> Iterator[str]:
    (x, y), (width, height) = box["at"], box["size"]
    yield f'<rect class="{box.get("kind", "box")}" x="{x}" y="{y}" width="{width}" height="{height}" rx="6"/>'
    lines = box.get("text", "").split("\n")
    if box.get("place") == "top":
        yield from _lines(box["text"], x + 12, y + 22, box.get("words", "bold"), "start")
    elif lines != [""]:
        top = y + height / 2 - (len(lines) - 1) * LINE / 2 + 5
        yield from _lines(box["text"], x + width / 2, top, box.get("words", ""), "middle")


def _table(table: Table) -> Iterator[str]:
    left, top = table["at"]
    for number, row in enumerate(table["rows"]):
        x = left
        kind = "head" if number == 0 else table.get("kinds", {}).get(str(number), "cell")
        for width, value in zip(table["widths"], row, strict=True):
            y = top + number * ROW
            yield f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{ROW}"/>'
            yield from _lines(value, x + 8, y + 16, "small bold" if number == 0 else "mono", "start")
            x += width


def _arrow(arrow: Table, boxes: Mapping[str, Table]) -> Iterator[str]:
    points = [_point(arrow["from"], boxes), *(tuple(at) for at in arrow.get("by", ())), _point(arrow["to"], boxes)]
    path = " ".join(f"{x:g},{y:g}" for x, y in points)
    tip = "" if arrow.get("tip") is False else ' marker-end="url(#tip)"'
    yield f'<polyline class="line {arrow.get("kind", "")}" points="{path}"{tip}/>'
    if "text" in arrow:
        (x, y), (u, v) = points[len(points) // 2 - 1 : len(points) // 2 + 1]
        shift = arrow.get("shift", [0, -8])
        yield from _lines(arrow["text"], (x + u) / 2 + shift[0], (y + v) / 2 + shift[1], "small faint", "middle")


def _point(place: str | Sequence[float], boxes: Mapping[str, Table]) -> Point:
    if not isinstance(place, str):
        return place[0], place[1]
    name, _, side = place.partition(".")
    if name not in boxes:
        raise ValueError(f"there is no box {name}")
    (x, y), (width, height) = boxes[name]["at"], boxes[name]["size"]
    sides = {
        "left": (x, y + height / 2),
        "right": (x + width, y + height / 2),
        "top": (x + width / 2, y),
        "bottom": (x + width / 2, y + height),
    }
    if side not in sides:
        raise ValueError(f"a box has no side {side}")
    return sides[side]


def _lines(text: str, x: float, y: float, kind: str, anchor: str) -> Iterator[str]:
    for number, line in enumerate(text.split("\n")):
        style = f' class="{kind}"' if kind else ""
        yield f'<text{style} x="{x:g}" y="{y + number * LINE:g}" text-anchor="{anchor}">{escape(line)}</text>'
