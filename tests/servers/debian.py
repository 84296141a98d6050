"""Programs of Debian's packages for tests, unpacked into the cache directory.

Nothing is installed: apt fetches the packages, dpkg unpacks them, and a program finds its libraries beside it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tailrace.spark.java import cache_directory
from tests.servers.jars import Unavailable


def find(program: str, packages: Sequence[str]) -> tuple[Path, dict[str, str]]:
    """A program and the environment that it needs: the machine's own, or that of `packages`, the first of which is the
    one that has it. Raises Unavailable."""
    installed = shutil.which(program)
    if installed:
        return Path(installed), dict(os.environ)
    root = cache_directory() / f"{packages[0].removesuffix('-server')}-debian"
    if not root.is_dir():
        _unpack(root, program, packages)
    libraries = [str(path) for path in root.glob("usr/lib/*-linux-gnu")]
    found = next(path for path in (root / "usr/bin" / program, root / "usr/sbin" / program) if path.exists())
    return found, os.environ | {"LD_LIBRARY_PATH": ":".join(libraries)}


def _unpack(root: Path, program: str, packages: Sequence[str]) -> None:
    """Fetch the packages and unpack them into `root`, which appears whole."""
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        raise Unavailable(f"there is no {program}, and no apt-get to fetch Debian's")
    root.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{program}-", dir=root.parent) as folder:
        fetched = subprocess.run(
            ["apt-get", "download", "-q", *packages],
            cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        if fetched.returncode != 0:
            lines = [line for line in fetched.stderr.splitlines() if line.startswith("E:")]
            raise Unavailable(f"Debian's {program} could not be fetched: {'; '.join(lines[:2])}")
        fresh = Path(folder) / "root"
        for package in sorted(Path(folder).glob("*.deb")):
            subprocess.run(["dpkg-deb", "-x", str(package), str(fresh)], check=True, stdin=subprocess.DEVNULL)
        if not root.is_dir():
            fresh.rename(root)
