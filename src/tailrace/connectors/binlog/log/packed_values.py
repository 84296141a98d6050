"""Text of decimals, dates and times in their packed forms, which rows and JSON of the log share. Worker."""

from __future__ import annotations

_DIGIT_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
_LAST_YEAR = 9999


def decimal_text(data: bytes, precision: int, scale: int) -> str:
    """Return the text of a packed decimal: nine digits in four bytes, the sign in the top bit, negatives inverted."""
    positive = bool(data[0] & 0x80)
    bits = bytes([data[0] ^ 0x80, *data[1:]])
    if not positive:
        bits = bytes(byte ^ 0xFF for byte in bits)
    whole, at = precision - scale, 0
    groups = [whole % 9, *[9] * (whole // 9)], [*[9] * (scale // 9), scale % 9]
    parts = []
    for sizes in groups:
        digits = ""
        for size in sizes:
            if not size:
                continue
            width = _DIGIT_BYTES[size]
            value = int.from_bytes(bits[at : at + width], "big")
            if len(bits[at : at + width]) != width or value >= 10**size:
                raise ValueError(value)
            digits += f"{value:0{size}d}"
            at += width
        parts.append(digits)
    if at != len(bits):
        raise ValueError(at)
    shown = parts[0].lstrip("0") or "0"
    if scale:
        shown += f".{parts[1]}"
    return shown if positive else f"-{shown}"


def date_text(value: int) -> str:
    """Return the text of a date in 24 bits: day, month and year, as digits. Raises ValueError."""
    if value >> 9 > _LAST_YEAR:
        raise ValueError(value)
    return f"{value >> 9:04d}-{value >> 5 & 15:02d}-{value & 31:02d}"


def datetime_text(value: int) -> str:
    """Return the text of a time in 40 bits: year and month together, day, hour, minute, second. Raises ValueError."""
    month, day = value >> 22, value >> 17 & 31
    if month // 13 > _LAST_YEAR:
        raise ValueError(value)
    return f"{month // 13:04d}-{month % 13:02d}-{day:02d} {value >> 12 & 31:02d}:{value >> 6 & 63:02d}:{value & 63:02d}"
