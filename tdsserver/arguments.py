"""The arguments of a stored procedure."""

from __future__ import annotations

from dataclasses import dataclass

from tdsserver.errors import SqlError


@dataclass(slots=True)
class Arguments:
    """A call's arguments in storage form: by name in small letters, and by position."""

    named: dict[str, object]
    placed: list[object]

    def bind(self, *names: str, required: int = 0, procedure: str = "") -> dict[str, object]:
        """Return the arguments by name; raises SqlError 201, 8144 or 8145."""
        if len(self.placed) > len(names):
            raise SqlError(8144, f"Procedure or function {procedure} has too many arguments specified.", 16, 2)
        found = dict(zip(names, self.placed, strict=False))
        for name, value in self.named.items():
            if name not in names:
                raise SqlError(8145, f"@{name} is not a parameter for procedure {procedure}.", 16, 2)
            found[name] = value
        for name in names[:required]:
            if name not in found:
                raise SqlError(
                    201,
                    f"Procedure or function '{procedure}' expects parameter '@{name}', which was not supplied.",
                    16,
                    4,
                )
        return found
