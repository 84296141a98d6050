"""Files that each version leaves on disk: a checkpoint and tables of each format, and offsets of every connector.

A directory below this one has the name of the version that wrote it, and stays for as long as a newer version reads it.
`python -m tests.stored` writes that of the present version: before a release, and never again after it.

Iceberg writes the whole paths of files into its tables, so those are written and read through Hadoop's viewfs, below
the same name on every machine.
"""

from __future__ import annotations

from pathlib import Path

HERE = Path(__file__).parent
FORMATS = {"delta": "", "iceberg": "iceberg"}
"""The formats of tables, and where below a version's directory are a checkpoint and its tables."""
MOUNTED = "viewfs://stored/tables"
"""The path of the tables of Iceberg."""


def mount(place: Path) -> dict[str, str]:
    """Return Hadoop's settings by which the directory `place` is found under `MOUNTED`."""
    return {
        "fs.viewfs.mounttable.stored.link./tables": place.as_uri(),
        # the next test has another directory
        "fs.viewfs.impl.disable.cache": "true",
    }


def versions() -> list[Path]:
    """Return the directories, oldest first."""
    found = [path for path in HERE.iterdir() if path.is_dir() and path.name[0].isdigit()]
    return sorted(found, key=lambda path: [int(part) for part in path.name.split(".")])
