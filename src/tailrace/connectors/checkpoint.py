"""What a query's checkpoint holds, for checks before a run. Reads files; driver only.

Spark writes, for each batch, `offsets/<number>` before it and `commits/<number>` after it: a version, a line of its
own, and one line of JSON for each source.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def stored_offset(directory: Path | None) -> dict[str, Any] | None:
    """The offset of the only source at the end of the latest batch that was planned; None where there is none.

    Also None for a checkpoint that is not in the local file system, `directory` being None, or that cannot be read.
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
