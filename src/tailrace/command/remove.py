"""The command `tailrace remove`: removes a pipeline's parts on the server, and its checkpoint. Driver.

The checkpoint is removed last: it shows which parts are the pipeline's own, so an interrupted command can be repeated.
Records and tables that the sink has written stay.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from tailrace.config.files import RunConfig
from tailrace.connectors.checkpoint import stored_offset
from tailrace.connectors.registry import find
from tailrace.connectors.removal import Removable
from tailrace.errors import ConfigError, PrerequisiteError, TailraceError
from tailrace.spark.lock import CheckpointLock

_OWN = frozenset({"metadata", "offsets", "commits", "sources", "state", "http.token"})
"""Names of files and directories in a checkpoint, beside hidden files and those whose names begin with `tailrace`."""


def run(configured: RunConfig, *, yes: bool, ask: Callable[[str], str] = input) -> int:
    """Remove the parts that the user agrees to, all with `yes`; return the exit code.

    Raises CheckpointInUse if a run holds the checkpoint, ConfigError if there is no terminal to ask on, and the
    TailraceError of a server that cannot be asked.
    """
    directory = configured.checkpoint
    if not yes and not sys.stdin.isatty() and ask is input:
        raise ConfigError("tailrace remove asks before it removes, and there is no terminal.", "Give --yes.")
    lock = None
    if directory is not None and directory.is_dir():
        lock = CheckpointLock(directory)
        lock.acquire(0)
    try:
        is_clean = _on_server(configured, yes, ask)
        return 0 if _checkpoint(configured, directory, is_clean, yes, ask) else PrerequisiteError.exit_code
    finally:
        if lock is not None:
            lock.release()


def _on_server(configured: RunConfig, yes: bool, ask: Callable[[str], str]) -> bool:
    """Remove the pipeline's parts on the server; return False if a part that is its own is left."""
    source = configured.source
    removal = find(source.connector).load_removal()
    if removal is None:
        if source["signal.data.collection"]:
            print(f"left     {source['signal.data.collection']}: drop it if no other pipeline uses it.")
        return True
    offset = stored_offset(configured.checkpoint)
    parts: Sequence[Removable] = removal.found(source, offset)
    is_clean = True
    for part in parts:
        if part.kept:
            print(f"left     {part.name}: {part.kept}")
            print(f"         → {part.statement};")
            continue
        if not _agreed(part.name, yes, ask):
            is_clean = False
            continue
        try:
            removal.remove(source, part)
        except TailraceError as error:
            print(f"left     {part.name}: {error.message}")
            print(f"         → {part.statement};")
            is_clean = False
        else:
            print(f"removed  {part.name}")
    return is_clean


def _checkpoint(
    configured: RunConfig, directory: Path | None, is_clean: bool, yes: bool, ask: Callable[[str], str]
) -> bool:
    """Remove the checkpoint; return False if a part of the pipeline is left."""
    if directory is None:
        print(f"left     the checkpoint {configured.checkpoint_location}: it is in no local directory.")
        return is_clean
    name = f"the checkpoint {directory}"
    if not directory.is_dir():
        print(f"gone     {name}: there is no such directory.")
        return is_clean
    if not is_clean:
        print(f"left     {name}: it shows what is this pipeline's own. Remove the rest, and run the command again.")
        return False
    names = {path.name for path in directory.iterdir()} - _OWN
    foreign = sorted(name for name in names if not name.startswith((".", "tailrace")))
    if foreign:
        print(f"left     {name}: it has files that are not a checkpoint's: {', '.join(foreign[:5])}.")
        return False
    if not _agreed(name, yes, ask):
        return False
    try:
        shutil.rmtree(directory)
    except OSError as error:
        print(f"left     {name}: {error.strerror}.")
        return False
    print(f"removed  {name}")
    return True


def _agreed(name: str, yes: bool, ask: Callable[[str], str]) -> bool:
    if yes or ask(f"Remove {name}? [y/N] ").strip().lower() in ("y", "yes"):
        return True
    print(f"left     {name}")
    return False
