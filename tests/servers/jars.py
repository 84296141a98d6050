"""Jars of the servers for tests, from Maven Central, once, into the user's cache directory.

The Ivy that PySpark brings resolves them.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tailrace.errors import PrerequisiteError
from tailrace.spark.startup.java import cache_directory, find_java


class Unavailable(Exception):
    """The jars are not in the cache and could not be fetched; the text says why."""


def java() -> Path:
    """The `java` that Spark runs with, too; raises Unavailable without any."""
    try:
        return find_java()[0]
    except PrerequisiteError as error:
        raise Unavailable(str(error)) from error


def fetch(name: str, modules: Sequence[str], transitive: bool = True, seconds: float = 300) -> list[Path]:
    """The jars of `modules` (`organisation:artifact:revision`, `:classifier`), and of what they need if `transitive`.

    They are in the cache's folder `name`, which names the revision too; the first time they are fetched, within
    `seconds`. Raises Unavailable.
    """
    cache = cache_directory()
    folder = cache / name
    if not folder.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=cache))
        try:
            _resolve(fresh, cache / "ivy", name, modules, "master,runtime" if transitive else "master", seconds)
            # Whole or not at all; another process may have been faster.
            if not folder.is_dir():
                (fresh / "jars").rename(folder)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
    return sorted(folder.glob("*.jar"))


def _resolve(folder: Path, cache: Path, name: str, modules: Sequence[str], confs: str, seconds: float) -> None:
    import pyspark

    ivy = next((Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar"))
    wanted = [[*module.split(":"), ""][:4] for module in modules]
    lines = "".join(
        f'<dependency org="{org}" name="{module}" rev="{rev}" conf="default->{confs}">'
        + (f'<artifact name="{module}" type="jar" m:classifier="{classifier}"/>' if classifier else "")
        + "</dependency>"
        for org, module, rev, classifier in wanted
    )
    description = folder / "ivy.xml"
    description.write_text(
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">'
        '<info organisation="tailrace" module="jars"/>'
        f'<configurations><conf name="default"/></configurations><dependencies>{lines}</dependencies></ivy-module>',
        encoding="utf-8",
    )
    pattern = str(folder / "jars" / "[artifact]-[revision](-[classifier]).[ext]")
    command = [str(java()), "-jar", str(ivy), "-ivy", str(description), "-cache", str(cache), "-confs", "default"]
    command += ["-types", "jar", "bundle", "-retrieve", pattern]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"the jars of {name} could not be fetched within {seconds:.0f} s") from error
    names = ["-".join(filter(None, parts)) for _, *parts in wanted]
    missing = [name for name in names if not (folder / "jars" / f"{name}.jar").is_file()]
    if done.returncode != 0 or missing:
        words = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        wrong = [line for line in words if "unresolved" in line.lower() or "error" in line.lower()] or words[-1:]
        raise Unavailable(f"the jars of {name} could not be fetched: " + "; ".join(wrong[:3]))
