"""The reference page of a connector's options, written from the same table that parses them.

`python -m tailrace.connectors.reference` renews the part of each page between its two marks; with `--check` it only
shows, by the exit code 1, that a page is out of date. A page is named after its connector: `<name>.md`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tailrace.config.connector import Options
from tailrace.config.option import Kind, Option
from tailrace.connectors import registry

BEGIN = "<!-- options: written by `python -m tailrace.connectors.reference`; do not edit -->"
END = "<!-- end of options -->"

_FORMS = (Kind.LIST, Kind.EXPRESSIONS, Kind.STATEMENTS, Kind.LETTERS)
"""Kinds whose notation is shown after the meaning of an option."""


def page(name: str) -> str:
    """Return the part of a connector's page between the marks: a table of options for each area, then those without
    effect."""
    table = registry.find(name).load_options()
    return "\n".join(["", *_supported(table), *_without_effect(table), *_unsupported(table)])


def renew(name: str, text: str) -> str:
    """Return the page `text` of a connector with the part between the marks renewed. Raises ValueError without
    marks."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page lacks the marks {BEGIN} and {END}")
    return f"{before}{BEGIN}\n{page(name)}{END}{after}"


def _supported(table: Options) -> Iterator[str]:
    for title, options in table.areas:
        shown = [option for option in options if not option.unsupported and not option.notice]
        if shown:
            yield from (f"### {title}", "", "| option | default | meaning |", "|---|---|---|")
            yield from (
                f"| {_code(option.name)} | {_default(option, table)} | {_meaning(option)} |" for option in shown
            )
            yield ""


def _without_effect(table: Options) -> Iterator[str]:
    yield from ("### Accepted without effect", "", "A value other than the default gives a warning.", "")
    yield from ("| option | why |", "|---|---|")
    for _, options in table.areas:
        yield from (f"| {_code(option.name)} | {_cell(option.notice)} |" for option in options if option.notice)
    yield ""


def _unsupported(table: Options) -> Iterator[str]:
    yield from ("### Not supported", "", "Any value but the default is an error that gives this reason.", "")
    yield from ("| option | default | why |", "|---|---|---|")
    for _, options in table.areas:
        for option in options:
            if option.unsupported and not option.notice:
                yield f"| {_code(option.name)} | {_default(option, table)} | {_cell(option.unsupported)} |"
    yield ""


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
    if option.instead:
        words = ", ".join(_code(word) for word, _, _ in option.instead)
        parts.append(f"Read as {_code(option.instead[0][1])}, with a warning: {words}.")
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
    pages = [Path("docs", "reference", f"{name}.md") for name in registry.OWN]
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
