"""Files that each version leaves on disk: a checkpoint and tables of Delta Lake, and offsets of every connector.

A directory below this one has the name of the version that wrote it, and stays for as long as a newer version reads it.
`python -m tests.stored` writes that of the present version: before a release, and never again after it.
"""

from __future__ import annotations

from pathlib import Path

HERE = Path(__file__).parent


def versions() -> list[Path]:
    """Return the directories, oldest first."""
    found = [path for path in HERE.iterdir() if path.is_dir() and path.name[0].isdigit()]
    return sorted(found, key=lambda path: [int(part) for part in path.name.split(".")])
