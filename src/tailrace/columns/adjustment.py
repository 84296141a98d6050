"""Names with characters replaced that Avro does not allow. No I/O, any process."""

from __future__ import annotations


def adjusted(name: str, mode: str, dots: bool) -> str:
    """Return `name` under the adjustment `mode`; `dots`: dots separate parts of the name.

    `avro` writes `_` for every illegal UTF-16 unit and puts `_` before a leading digit. `avro_unicode` writes `_uXXXX`,
    for the underscore as well, so that names stay distinct.
    """
    if mode == "none":
        return name
    parts: list[str] = []
    units = memoryview(name.encode("utf-16-le")).cast("H")
    for position, unit in enumerate(units):
        char = chr(unit)
        letter = char.isascii() and char.isalpha()
        digit = char.isascii() and char.isdigit()
        if mode == "avro_unicode":
            parts.append(_unicode(char, unit, letter or (digit and position > 0), dots))
        elif letter or char == "_" or (digit and position > 0) or (char == "." and dots):
            parts.append(char)
        elif digit:
            parts.append("_" + char)
        else:
            parts.append("_")
    return "".join(parts)


def _unicode(char: str, unit: int, legal: bool, dots: bool) -> str:
    if legal or (char == "." and dots):
        return char
    return f"_u{unit:04x}"
