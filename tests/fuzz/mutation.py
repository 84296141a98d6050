"""Damage to valid input for a fuzzer. The same seed makes the same inputs."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import Literal

MOST_BYTES = 1 << 16
_BYTES = b"\x00\x01\x02\x7f\x80\xfe\xff \"'\\{}[](),:;-+.0123456789eEnNtT/\n"
_SIZES = (1, 2, 4, 8)
_NUMBER = re.compile(rb"\d+")
_NUMBERS = (
    b"0", b"-1", b"00", b"-0", b"9", b"99", b"4294967296", b"2147483648", b"9223372036854775808", b"1e9", b"-", b"",
    b"0.5", b"18446744073709551616", b"1" * 30,
)  # fmt: skip


class Mutator:
    """A generator of inputs from a pool, and from `words` that have a meaning for the target."""

    def __init__(self, chosen: random.Random, words: Sequence[bytes]) -> None:
        self._chosen = chosen
        self._words = words or (b"\0",)

    def damaged(self, pool: Sequence[bytes]) -> bytes:
        """Return an input of the pool with up to six changes."""
        chosen = self._chosen
        data = bytearray(chosen.choice(pool))
        for _ in range(chosen.choice((1, 1, 1, 2, 2, 3, 4, 6))):
            self._change(data, pool)
            if len(data) > MOST_BYTES:
                del data[MOST_BYTES:]
        return bytes(data)

    def _change(self, data: bytearray, pool: Sequence[bytes]) -> None:
        chosen = self._chosen
        at = self._place(data)
        match chosen.randrange(12):
            case 0 if data:
                data[at] ^= 1 << chosen.randrange(8)
            case 1 if data:
                data[at] = chosen.choice(_BYTES)
            case 2:
                data[at:at] = bytes([chosen.choice(_BYTES) for _ in range(chosen.choice((1, 1, 2, 5)))])
            case 3:
                del data[at : at + chosen.choice((1, 1, 2, 4, 9, 40))]
            case 4:
                del data[at:]
            case 5:
                part = data[at : at + chosen.choice((1, 4, 16, 64))]
                data[at:at] = part * chosen.choice((1, 1, 2, 17))
            case 6:
                other = chosen.choice(pool)
                begin = chosen.randrange(len(other) + 1)
                data[at:] = other[begin:]
            case 7:
                other = chosen.choice(pool)
                begin = chosen.randrange(len(other) + 1)
                data[at:at] = other[begin : begin + chosen.choice((1, 4, 16, 64))]
            case 8:
                data[at:at] = chosen.choice(self._words)
            case 9:
                word = chosen.choice(self._words)
                data[at : at + len(word)] = word
            case 10:
                self._number(data, at)
            case _:
                self._digits(data)

    def _place(self, data: bytearray) -> int:
        """Return a random place; half of the time near the beginning, where the structure is."""
        reach = len(data) if self._chosen.random() < 0.5 else min(len(data), 24)
        return self._chosen.randrange(reach) if reach else 0

    def _number(self, data: bytearray, at: int) -> None:
        """Replace a binary number by another one: slightly changed, or at a limit of its range."""
        size = self._chosen.choice(_SIZES)
        if at + size > len(data):
            return
        order: Literal["big", "little"] = "big" if self._chosen.random() < 0.5 else "little"
        value = int.from_bytes(data[at : at + size], order)
        most = 1 << (8 * size)
        value = self._chosen.choice(
            (value + 1, value - 1, 2 * value, 0, most - 1, most // 2, len(data), len(data) - at)
        )
        data[at : at + size] = (value % most).to_bytes(size, order)

    def _digits(self, data: bytearray) -> None:
        """Replace a number in digits by another one."""
        found = list(_NUMBER.finditer(data))
        if found:
            one = self._chosen.choice(found)
            data[one.start() : one.end()] = self._chosen.choice(_NUMBERS)


def frames(data: bytes) -> list[bytes]:
    """Split what `framed` has joined. Damaged input is split by its lengths, with the rest as the last piece."""
    found = []
    at = 0
    while at + 2 <= len(data):
        size = int.from_bytes(data[at : at + 2], "big")
        found.append(data[at + 2 : at + 2 + size])
        at += 2 + size
    return found


def framed(pieces: Sequence[bytes]) -> bytes:
    """Join pieces with their lengths before them."""
    return b"".join(len(piece).to_bytes(2, "big") + piece for piece in pieces)
