"""Status variables of QUERY events: under which settings a statement ran. No I/O."""

from __future__ import annotations

from dataclasses import dataclass

_ANSI_QUOTES, _NO_BACKSLASH = 1 << 2, 1 << 20


@dataclass(frozen=True, slots=True)
class Status:
    """The settings of a statement's session; collations by number, 0 if the event does not say."""

    sql_mode: int = 0
    client_collation: int = 0
    server_collation: int = 0

    @property
    def ansi_quotes(self) -> bool:
        return bool(self.sql_mode & _ANSI_QUOTES)

    @property
    def no_backslashes(self) -> bool:
        return bool(self.sql_mode & _NO_BACKSLASH)


# The bytes behind each code; those of texts are counted by a length.
_SIZES = {0: 4, 1: 8, 3: 4, 4: 6, 7: 2, 8: 2, 9: 8, 10: 4, 13: 3, 16: 1, 17: 8, 18: 2, 19: 1, 20: 1, 128: 3, 129: 8}


def status_of(variables: bytes) -> Status:
    """Return the settings among the status variables of an event; what stands behind an unknown code is not read."""
    mode = client = server = at = 0
    while at < len(variables):
        code = variables[at]
        at += 1
        if code in _SIZES:
            value = variables[at : at + _SIZES[code]]
            at += _SIZES[code]
            if code == 1:
                mode = int.from_bytes(value, "little")
            elif code == 4:
                client, server = int.from_bytes(value[:2], "little"), int.from_bytes(value[4:6], "little")
        elif code in (5, 6):
            at += 1 + variables[at] if at < len(variables) else 0
        elif code == 2:
            at += 2 + variables[at] if at < len(variables) else 0
        elif code == 11 and at < len(variables):
            at += 1 + variables[at]
            at += 1 + variables[at] if at < len(variables) else 0
        else:
            break
    return Status(mode, client, server)
