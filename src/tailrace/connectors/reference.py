"""The reference pages of options, written from the tables that parse them.

`options.md` defines each option that several databases share. A database's page defines its own options, and those
whose default or meaning differs from the shared definition.

`python -m tailrace.connectors.reference` renews the part of each page between its two marks; with `--check` it writes
nothing and exits with 1 if a page is out of date. A database's page is named after its title, in small letters and
without blanks.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from tailrace.config.connector import Options
from tailrace.config.option import Kind, Option
from tailrace.connectors import registry

BEGIN = "<!-- options: written by `python -m tailrace.connectors.reference`; do not edit -->"
END = "<!-- end of options -->"
SHARED = "options"
"""Name of the page with the shared definitions."""

_FORMS = (Kind.LIST, Kind.EXPRESSIONS, Kind.LETTERS)
"""Kinds whose notation is shown after the meaning of an option."""

_WITHOUT_EFFECT = "Accepted without effect"
_UNSUPPORTED = "Not supported"
_HEADS = {
    _WITHOUT_EFFECT: ("A value other than the default gives a warning.", ("option", "why")),
    _UNSUPPORTED: ("Any value but the default is an error that gives this reason.", ("option", "default", "why")),
}


class Definition(NamedTuple):
    """An option as a page shows it: the heading that it stands under if it takes effect, and its cells."""

    effect: str
    default: str
    meaning: str


class Row(NamedTuple):
    """A row of a page: the heading that it stands under, the option's name and its definition."""

    heading: str
    name: str
    definition: Definition


def names() -> tuple[str, ...]:
    """Return the names of all pages, the shared one first."""
    return SHARED, *(_page_name(name) for name in registry.OWN)


def page(name: str) -> str:
    """Return the part of a page between the marks: a table of options for each heading."""
    rows = _shared() if name == SHARED else _own(_connector(name))
    headings = [*dict.fromkeys(row.heading for row in rows if row.heading not in _HEADS), *_HEADS]
    anchored: set[str] = set()
    return "\n".join(["", *(line for heading in headings for line in _section(heading, rows, anchored))])


def renew(name: str, text: str) -> str:
    """Return the page `text` with the part between the marks renewed. Raises ValueError without marks."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page lacks the marks {BEGIN} and {END}")
    return f"{before}{BEGIN}\n{page(name)}{END}{after}"


def _page_name(connector: str) -> str:
    return registry.find(connector).title.lower().replace(" ", "")


def _connector(page_name: str) -> str:
    return next(one.name for one in registry.known() if _page_name(one.name) == page_name)


@cache
def _rows(connector: str) -> tuple[Row, ...]:
    """Return all options of a connector, in the order of its table."""
    table = registry.find(connector).load_options()
    return tuple(
        Row(_heading(option, title), option.name, _definition(option, table))
        for title, options in table.areas
        for option in options
    )


def _heading(option: Option, title: str) -> str:
    if option.notice:
        return _WITHOUT_EFFECT
    return _UNSUPPORTED if option.unsupported else title


def _definition(option: Option, table: Options) -> Definition:
    heading = _heading(option, "")
    meaning = _cell(option.notice or option.unsupported) if heading else _meaning(option)
    return Definition(heading, "" if heading == _WITHOUT_EFFECT else _default(option, table), meaning)


@cache
def _common() -> dict[str, tuple[Definition, ...]]:
    """Return the definitions of each option that several connectors share, the most common first."""
    found: dict[str, Counter[Definition]] = {}
    for connector in registry.OWN:
        for row in _rows(connector):
            found.setdefault(row.name, Counter())[row.definition] += 1
    return {
        name: tuple(definition for definition, count in counts.most_common() if count > 1)
        for name, counts in found.items()
    }


def _shared() -> list[Row]:
    """Return the rows of the shared page, each with the databases that it does not cover."""
    rows = dict.fromkeys(
        row._replace(heading=_common_heading(row))
        for connector in registry.OWN
        for row in _rows(connector)
        if row.definition in _common()[row.name]
    )
    titles = dict.fromkeys(title for connector in registry.OWN for title, _ in _areas(connector))
    places = {title: place for place, title in enumerate(titles)}
    noted = [row._replace(definition=_noted(row)) for row in rows]
    return sorted(noted, key=lambda row: places.get(row.heading, len(places)))


def _areas(connector: str) -> tuple[tuple[str, tuple[Option, ...]], ...]:
    return registry.find(connector).load_options().areas


@cache
def _common_heading(row: Row) -> str:
    """Return the heading under which the first connector with the same definition has the option."""
    return next(
        other.heading
        for connector in registry.OWN
        for other in _rows(connector)
        if (other.name, other.definition) == (row.name, row.definition)
    )


def _noted(row: Row) -> Definition:
    """Return a shared definition with the databases that lack the option or define it otherwise."""
    having, lacking, differing = [], [], []
    for connector in registry.OWN:
        title = registry.find(connector).title
        definition = next((other.definition for other in _rows(connector) if other.name == row.name), None)
        if definition is None:
            lacking.append(title)
        elif definition == row.definition:
            having.append(title)
        elif definition not in _common()[row.name]:
            differing.append(f"[{title}]({_page_name(connector)}.md)")
    several = len(_common()[row.name]) > 1
    notes = {"For": having if several else [], "Differs": differing, "Not for": lacking}
    meaning = row.definition.meaning
    if any(notes.values()) and not meaning.endswith("."):
        meaning += "."
    meaning += "".join(f" *{word}:* {', '.join(titles)}." for word, titles in notes.items() if titles)
    return row.definition._replace(meaning=meaning)


def _own(connector: str) -> list[Row]:
    """Return the rows that the shared page does not define for this connector."""
    return [row for row in _rows(connector) if row.definition not in _common().get(row.name, ())]


def _section(heading: str, rows: Iterable[Row], anchored: set[str]) -> Iterator[str]:
    """Yield the lines of a table; `anchored` are the options that already have a target of links."""
    if not (shown := [row for row in rows if row.heading == heading]):
        return
    intro, columns = _HEADS.get(heading, ("", ("option", "default", "meaning")))
    yield from (f"## {heading}", "")
    if intro:
        yield from (intro, "")
    yield f"| {' | '.join(columns)} |"
    yield "|---" * len(columns) + "|"
    for row in shown:
        cells = row.definition[2:] if heading == _WITHOUT_EFFECT else row.definition[1:]
        anchor = "" if row.name in anchored else _anchor(row.name)
        anchored.add(row.name)
        yield f"| {anchor}{_code(row.name)} | {' | '.join(cells)} |"
    yield ""


def _anchor(name: str) -> str:
    """Return the target of links to an option: its name without the brackets of placeholders."""
    return f'<a id="{name.translate(_BRACKETS)}"></a>'


_BRACKETS = str.maketrans("", "", "<>")


def _default(option: Option, table: Options) -> str:
    if option.name in table.required:
        return "required"
    shown = _value(option.default)
    if option.default_1x is not None and table.event_format.startswith("1."):
        shown += f"; {_value(option.default_1x)} in the format {table.event_format}"
    return shown


def _value(value: Any) -> str:
    if value is None or value == "":
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, list | frozenset):
        return _code(",".join(sorted(value))) if value else "none"
    return _code(str(value))


def _meaning(option: Option) -> str:
    parts = [_cell(option.doc)]
    if option.choices and option.name != "connector.class":
        parts.append(f"One of {', '.join(_code(choice) for choice in option.choices)}.")
    elif option.kind in _FORMS:
        parts.append(f"{option.kind.value[0].upper()}{option.kind.value[1:]}.")
    if option.refused:
        parts.append(f"Not supported: {', '.join(_code(choice) for choice, _ in option.refused)}.")
    for taken in dict.fromkeys(taken for _, taken, _ in option.instead):
        words = ", ".join(_code(word) for word, other, _ in option.instead if other == taken)
        parts.append(f"Read as {_code(taken)}, with a warning: {words}.")
    older = [*option.aliases, *option.deprecated_names]
    if older:
        parts.append(f"Also {', '.join(_code(name) for name in older)}.")
    return " ".join(parts)


def _code(text: str) -> str:
    return f"`{_cell(text)}`"


def _cell(text: str) -> str:
    """Return text that does not end its table cell."""
    return text.replace("|", "\\|")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tailrace.connectors.reference", description=__doc__)
    pages = [Path("docs", "reference", f"{name}.md") for name in names()]
    parser.add_argument("page", type=Path, nargs="*", default=pages)
    parser.add_argument("--check", action="store_true", help="write nothing")
    arguments = parser.parse_args(argv)
    stale = False
    for path in arguments.page:
        text = path.read_text("utf-8")
        fresh = renew(path.stem, text)
        stale = stale or fresh != text
        if not arguments.check:
            path.write_text(fresh, "utf-8")
    return int(stale and arguments.check)


if __name__ == "__main__":
    sys.exit(main())
