"""Groovy and GraalJS as they are: what their expressions give, in a JVM of their own."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.servers import jars

Row = Mapping[str, Sequence[str] | None]
"""The values of a row, each by its Java type and its text; None is null."""
Answer = tuple[str, str]
"""The result of an expression: `boolean`, `text`, `number`, `null`, `error` or `other`, and its text."""

_GROOVY = ("org.apache.groovy:groovy:4.0.22", "org.apache.groovy:groovy-json:4.0.22")
_GRAAL = ("org.graalvm.js:js:22.3.5",)
_SCRIPT = Path(__file__).with_suffix(".groovy")
_PATIENCE_S = 900


def answers(cases: Sequence[tuple[str, str]], rows: Sequence[Row], folder: Path) -> list[list[Answer]]:
    """Return what each expression gives of each row; a case is its language, `groovy` or `js`, and its text.

    Raises jars.Unavailable.
    """
    found = [*jars.fetch("groovy-4.0.22-json", _GROOVY, transitive=False), *jars.fetch("graaljs-22.3.5", _GRAAL)]
    given, told = folder / "cases.json", folder / "answers.jsonl"
    given.write_text(json.dumps({"rows": rows, "cases": cases}), encoding="utf-8")
    command = [
        str(jars.java()), "-Dfile.encoding=UTF-8", "-Dpolyglot.engine.WarnInterpreterOnly=false",
        "-cp", os.pathsep.join(map(str, found)), "groovy.ui.GroovyMain", str(_SCRIPT), str(given), str(told),
    ]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True, timeout=_PATIENCE_S)
    lines = told.read_text(encoding="utf-8").splitlines()
    return [[(kind, text) for kind, text in json.loads(line)] for line in lines]
