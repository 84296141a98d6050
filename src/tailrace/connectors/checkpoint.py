"""The latest offset in a query's checkpoint, for checks before a run. Reads files; driver only.

Spark writes `offsets/<number>` before each batch and `commits/<number>` after it. A file of `offsets` has a line with
the version, a line of Spark's own metadata, and one line of JSON for each source.
"""

from __future__ import annotations

import functools
import json
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from tailrace.config.config import Config
from tailrace.config.files import checkpoint_directory
from tailrace.config.filters import TableFilter
from tailrace.errors import PositionLost
from tailrace.snapshot.table_commands import NO_COMMANDS, TableCommands, settled

_Offset = TypeVar("_Offset", bound=Any)


FORM = 1
"""The form of the offsets that this version writes, and the newest that it reads.

A version whose offsets hold something that earlier versions must not ignore raises the number, and writes it as the
field `form`. Offsets of form 1 have no such field, so that equal offsets have equal text in every version.
"""
_FORM = "form"
_BACK = (
    "Install the newer version again. This one can only begin anew: with another checkpoint, and another slot if the "
    "database has slots."
)


def understood(call: Callable[..., _Offset]) -> Callable[..., _Offset]:
    """Decorate a function that parses an offset from JSON, its last argument. PositionLost is raised if that fails.

    It is also raised for an offset of a newer form, and for one with a field that the parsed offset does not write: a
    newer version wrote it, and ignoring the field could lose changes.
    """

    @functools.wraps(call)
    def guarded(*args: Any) -> _Offset:
        fields = args[-1]
        try:
            form = fields.get(_FORM, 1)
            if not 1 <= form <= FORM:
                raise PositionLost(
                    f"A newer tailrace has written the checkpoint: its offsets have the form {int(form)}, and this "
                    f"version reads up to {FORM}.",
                    _BACK,
                )
            found = call(*args)
            # an offset with a wrong value cannot be written
            unknown = sorted({str(name) for name in fields} - set(found.to_json()) - {_FORM})
        except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError, zlib.error):
            raise PositionLost(
                "The checkpoint has an offset that is not understood.",
                "It was edited by hand or damaged: restore the file, or delete the checkpoint to start again with a "
                "snapshot.",
            ) from None
        if unknown:
            raise PositionLost(
                f"A newer tailrace has written the checkpoint: this version does not know the field {unknown[0]} of "
                "its offsets.",
                _BACK,
            )
        return found

    return guarded


def ordered(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return an offset with the keys of every object sorted: Spark compares offsets as text."""
    return {key: ordered(found) if isinstance(found := fields[key], dict) else found for key in sorted(fields)}


def stored_offset(directory: Path | None) -> dict[str, Any] | None:
    """Return the only source's offset after the last planned batch; None if there is none.

    Also None for a checkpoint that is not in the local file system (`directory` is None), or that cannot be read.
    """
    if directory is None:
        return None
    try:
        batches = [int(path.name) for path in (directory / "offsets").iterdir() if path.name.isdigit()]
        lines = (directory / "offsets" / str(max(batches))).read_text("utf-8").splitlines()
        found = json.loads(lines[2])
    except (OSError, ValueError, IndexError):
        return None
    return found if isinstance(found, dict) else None


def stored_commands(config: Config) -> TableCommands:
    """Return the tables that were added to a pipeline and removed from it while it ran.

    Raises ConfigError if the lists contradict the checkpoint.
    """
    progress = (stored_offset(checkpoint_directory(config)) or {}).get("progress", {})
    return settled(TableCommands.from_json(progress["tables"]) if "tables" in progress else NO_COMMANDS, config)


def table_filter(config: Config) -> TableFilter:
    """Return the lists of a pipeline, with the tables that were added and removed while it ran.

    Raises ConfigError if the lists contradict the checkpoint.
    """
    commands, found = stored_commands(config), TableFilter(config)
    found.overrule(commands.added, commands.removed)
    return found
