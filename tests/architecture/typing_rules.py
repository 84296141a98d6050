"""Helpers of the tests of types: lines that the type checker must refuse, and the callers of a function."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
CONNECTORS = ROOT / "src" / "tailrace" / "connectors"


def check_refused(source: str, folder: Path) -> None:
    """Fail unless mypy refuses exactly the lines of `source` that end with `# wrong`. `folder` is the test's own."""
    snippet = folder / "mixed.py"
    snippet.write_text(source)
    command = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"), "--no-error-summary"]
    environment = os.environ | {"MYPYPATH": str(ROOT / "src")}
    done = subprocess.run(
        [*command, str(snippet)], cwd=ROOT, capture_output=True, text=True, check=False, env=environment
    )
    refused = {int(line) for line in re.findall(r"mixed\.py:(\d+): error: ", done.stdout)}
    lines = enumerate(source.splitlines(), 1)
    assert refused == {number for number, line in lines if line.endswith("# wrong")}, done.stdout + done.stderr


def callers(connector: str, name: str) -> list[str]:
    """Return the functions of a connector that call `name`, as `file.function`."""
    found = []
    for path in sorted((CONNECTORS / connector).rglob("*.py")):
        for function in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(function, ast.FunctionDef):
                calls = [one for one in ast.walk(function) if isinstance(one, ast.Call)]
                if any(getattr(one.func, "id", getattr(one.func, "attr", "")) == name for one in calls):
                    found.append(f"{path.stem}.{function.name}")
    return found
