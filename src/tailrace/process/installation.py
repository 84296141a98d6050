"""The command that adds an extra of an installed package, by the way in which it was installed. Any process."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from importlib.metadata import Distribution


def pip_install(requirement: str) -> str:
    """Return the command that installs `requirement`, such as `tailrace[kafka]`, from where the package came.

    That is the directory or the archive that pip recorded (PEP 610), or an index. If the directory or the file is gone,
    the command names the packages of the extra instead. A package that pip has not installed, as one in an archive on
    PYTHONPATH, has no such record: the command then names the requirement as it is given.
    """
    # not at the top: every connector imports this module, and an error is rare
    from importlib.metadata import PackageNotFoundError, distribution

    name, _, extra = requirement.rstrip("]").partition("[")
    try:
        found = distribution(name)
    except PackageNotFoundError:
        return f"pip install {shlex.quote(requirement)}"
    extras = f"[{extra}]" if extra else ""
    record = _record(found)
    url = str(record.get("url", ""))
    if not url:
        return f"pip install {shlex.quote(requirement)}"
    parts = urlsplit(url)
    if parts.scheme == "file":
        place = unquote(parts.path)
        if not Path(place).exists():
            return f"pip install {' '.join(map(shlex.quote, _packages(found, extra))) or shlex.quote(requirement)}"
        editable = "-e " if record.get("dir_info", {}).get("editable") else ""
        return f"pip install {editable}{shlex.quote(place + extras)}"
    control = record.get("vcs_info", {})
    if control:
        url = f"{control.get('vcs', 'git')}+{url}@{control.get('commit_id', 'HEAD')}"
    return f"pip install {shlex.quote(f'{name}{extras} @ {url}')}"


def _record(found: Distribution) -> dict[str, dict[str, object]]:
    try:
        record = json.loads(found.read_text("direct_url.json") or "{}")
    except ValueError:
        return {}
    return record if isinstance(record, dict) else {}


def _packages(found: Distribution, extra: str) -> list[str]:
    """Return the requirements that belong to `extra` alone."""
    listed = (entry.partition(";") for entry in found.requires or ())
    wanted = {f'extra == "{extra}"', f"extra == '{extra}'"}
    return [needed.strip() for needed, _, marker in listed if marker.strip() in wanted]
