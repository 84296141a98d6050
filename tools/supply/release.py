"""Make the sources ready for a release: `python -m tools.supply.release vX.Y.Z ADDRESS`.

The tag, the package and the changelog must have one version, and the changelog a date for it. Then pyproject.toml gets
the project's addresses, which only the repository that makes the release knows.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

from tools.supply.parts import ROOT

_VERSION = re.compile(r'^__version__ = "([^"]+)"$', re.MULTILINE)
_NEWEST = re.compile(r"^## \[(?P<version>\d[^\]]*)\] - (?P<date>\S+)$", re.MULTILINE)
_TABLE = "[project.scripts]"


class NotReady(Exception):
    """A fault that keeps a release back."""


def prepare(tag: str, address: str, root: Path = ROOT) -> None:
    """Check the versions, and write the addresses into pyproject.toml. Raises NotReady, and then writes nothing."""
    own = _VERSION.search((root / "src" / "tailrace" / "__init__.py").read_text("utf-8"))
    newest = _NEWEST.search((root / "CHANGELOG.md").read_text("utf-8"))
    if own is None or newest is None:
        raise NotReady("the package or the changelog has no version")
    if tag != f"v{own[1]}":
        raise NotReady(f"the tag is {tag}, the package's version {own[1]}")
    if newest["version"] != own[1]:
        raise NotReady(f"the changelog's newest version is {newest['version']}, the package's {own[1]}")
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", newest["date"]):
        raise NotReady(f"the changelog has no date for {own[1]}: {newest['date']}")
    if not re.fullmatch(r"https://[\w.\-]+/[\w.\-/]*[\w\-]", address):
        raise NotReady(f"{address} is no address of a repository")
    project = root / "pyproject.toml"
    text = project.read_text("utf-8")
    if "urls" in tomllib.loads(text)["project"]:
        raise NotReady("pyproject.toml has addresses already")
    urls = {
        "Source": address,
        "Documentation": f"{address}/blob/{tag}/docs/index.md",
        "Changelog": f"{address}/blob/{tag}/CHANGELOG.md",
        "Issues": f"{address}/issues",
        "Security": f"{address}/blob/{tag}/SECURITY.md",
    }
    lines = "".join(f'{name} = "{url}"\n' for name, url in urls.items())
    project.write_text(text.replace(_TABLE, f"[project.urls]\n{lines}\n{_TABLE}", 1), "utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    tag, address = sys.argv[1:] if arguments is None else arguments
    try:
        prepare(tag, address)
    except NotReady as error:
        print(f"not ready for a release: {error}", file=sys.stderr)
        return 1
    print(f"{tag} is ready")
    return 0


if __name__ == "__main__":
    sys.exit(main())
