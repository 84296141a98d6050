"""The repository as a whole follows its rules."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BANNED = {"utils", "util", "common", "helpers", "helper", "types", "misc"}

# In pieces, so that this file does not contain the words that it searches for.
HOSTS = re.compile("|".join(["pypi" + r"\.org", "python" + "hosted", "repo1?" + r"\.maven", "conda" + r"\.io"]), re.I)
PATHS = re.compile("(?<![\\w.$}])/(?:" + "|".join(["ho" + "me", "ro" + "ot", "Us" + "ers", "wo" + "rk"]) + r")/[\w.-]+")
BINARY = {".gz", ".png", ".jar", ".parquet", ".bin"}


def tracked() -> list[Path]:
    """Return the repository's files, including those not yet added, without ignored ones."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    try:
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("the tree is not a git work tree")
    paths = [ROOT / name for name in listed.decode().split("\0") if name]
    return [path for path in paths if path.is_file()]


def python_files() -> list[Path]:
    """Return the repository's Python files."""
    return [path for path in tracked() if path.suffix == ".py"]


def lines_matching(pattern: re.Pattern[str], paths: list[Path]) -> Iterator[str]:
    """Return every line that matches the pattern, as `file:line: match`."""
    for path in paths:
        if path.suffix in BINARY:
            continue
        for number, line in enumerate(path.read_text("utf-8", errors="replace").splitlines(), 1):
            match = pattern.search(line)
            if match:
                yield f"{path.relative_to(ROOT)}:{number}: {match.group()}"


def test_dependencies_point_down() -> None:
    linter = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([linter, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_sql_server_of_tests_knows_nothing_of_the_product() -> None:
    wrong = re.compile(r"^\s*(from|import) (tailrace|tests)\b")
    assert list(lines_matching(wrong, [path for path in python_files() if ROOT / "tdsserver" in path.parents])) == []


def test_no_module_is_named_after_nothing() -> None:
    assert [str(path) for path in python_files() if {path.stem, path.parent.name} & BANNED] == []


def test_no_registry_is_named() -> None:
    assert list(lines_matching(HOSTS, tracked())) == []


def test_no_path_of_one_machine_is_named() -> None:
    assert list(lines_matching(PATHS, tracked())) == []


def test_the_lock_pins_every_package_with_its_hashes() -> None:
    text = (ROOT / "requirements.lock").read_text("utf-8")
    entries = re.split(r"\n(?=[a-z0-9])", text.replace("\\\n", ""))
    assert [entry for entry in entries if not re.match(r"[a-z0-9.\-\[\]]+==\S+[^\n]*--hash=sha256:", entry)] == []


def test_the_lock_holds_every_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    wanted = [*project["dependencies"], *chain.from_iterable(project["optional-dependencies"].values())]
    names = {re.split(r"[\[<>=~!; ]", requirement)[0].lower().replace("_", "-") for requirement in wanted}
    locked = set(re.findall(r"^([a-z0-9.\-]+)==", (ROOT / "requirements.lock").read_text("utf-8"), re.M))
    assert names - locked == set()
