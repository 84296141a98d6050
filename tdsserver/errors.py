"""SQL Server's numbered errors, as the server's own code raises them and the wire carries them."""

from __future__ import annotations


class SqlError(Exception):
    """An error message of SQL Server: its number, severity (class), state and text."""

    def __init__(self, number: int, text: str, severity: int = 16, state: int = 1) -> None:
        super().__init__(f"Msg {number}: {text}")
        self.number = number
        self.text = text
        self.severity = severity
        self.state = state


def syntax(near: str) -> SqlError:
    """Return error 102: the statement is not T-SQL, or not in the part of T-SQL that this server knows."""
    return SqlError(102, f"Incorrect syntax near '{near}'.", 15)


def unknown_object(name: str) -> SqlError:
    """Return error 208: there is no such object."""
    return SqlError(208, f"Invalid object name '{name}'.")


def unknown_column(name: str) -> SqlError:
    """Return error 207: there is no such column."""
    return SqlError(207, f"Invalid column name '{name}'.")


def no_implicit(source: str, target: str) -> SqlError:
    """Return error 257: only CONVERT converts between the two types."""
    return SqlError(
        257,
        f"Implicit conversion from data type {source} to {target} is not allowed."
        " Use the CONVERT function to run this query.",
        16,
        3,
    )


def clash(left: str, right: str) -> SqlError:
    """Return error 206: there is no conversion between the two types."""
    return SqlError(206, f"Operand type clash: {left} is incompatible with {right}", 16, 2)


def unsupported(what: str) -> SqlError:
    """Return an error that SQL Server does not have: this server does not model the feature.

    The number 50001 is among the numbers for users' own errors.
    """
    return SqlError(50001, f"The test server does not support {what}.")
