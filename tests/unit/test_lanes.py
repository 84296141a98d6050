"""Tests in several processes include all tests; a failure in any of them counts, and the seconds of each are shown."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from contextlib import nullcontext
from pathlib import Path

import pytest

from tests import conftest, durations, lanes
from tests.lanes import Ended, Part, Passed

NAMES = ("golden", "integration", "unit", "fresh")
PLUGIN = Path(durations.__file__)
OPTIONS = """
pytest_plugins = ["durations"]

def pytest_addoption(parser):
    for name in ("--quick", "--full"):
        parser.addoption(name, action="store_true")
"""


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a directory of tests with one in each part, where `lanes` looks for them."""
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\npythonpath = ['.']\n")
    for name in NAMES:
        (tmp_path / "tests" / name).mkdir(parents=True)
        (tmp_path / "tests" / name / f"test_{name}.py").write_text(f"def test_{name}(): pass\n")
    (tmp_path / "tests" / "helpers").mkdir()
    (tmp_path / "conftest.py").write_text(OPTIONS)
    shutil.copy(PLUGIN, tmp_path)
    (tmp_path / lanes.SERVER).mkdir()
    (tmp_path / lanes.SERVER / "test_server.py").write_text("def test_server(): pass\n")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setattr(lanes, "HERE", tmp_path / "tests")
    monkeypatch.setattr(lanes, "BUILD", tmp_path / "build" / "tests")
    monkeypatch.setattr(lanes, "classes", lambda environment: nullcontext())
    monkeypatch.setattr(lanes, "compiled", lambda environment: Ended(0, "none to compile", 0.5))
    monkeypatch.setattr(lanes, "commit", lambda: "abc")
    parts = (Part("golden", ("golden",)), Part("databases", ("integration", "gone")), Part("others"))
    monkeypatch.setattr(lanes, "PARTS", parts)
    return tmp_path / "tests"


def shown(said: str) -> dict[str, str]:
    """Return the last line of each part by its name."""
    rows = said.partition("== the parts\n")[2].splitlines()
    return dict(row.partition(" s  ")[2].split(": ", 1) for row in rows)


def test_every_directory_is_run_by_one_part(tree: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert lanes.main(["-v"]) == 0
    said = capfd.readouterr().out
    assert [said.count(f"::test_{name} PASSED") for name in (*NAMES, "server")] == [1, 1, 1, 1, 1]
    parts = shown(said)
    assert set(parts) == {"kernels", "golden", "databases", "others"}
    assert "1 passed" in parts["golden"]
    assert "1 passed" in parts["databases"]
    assert "3 passed" in parts["others"]


def test_a_directory_below_one_is_run_by_its_own_part_alone(
    tree: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tree / "integration" / "large").mkdir()
    (tree / "integration" / "large" / "test_large.py").write_text("def test_large(): pass\n")
    whole, below = Part("whole", ("integration",)), Part("below", ("integration/large", "integration/gone"))
    monkeypatch.setattr(lanes, "PARTS", (Part("golden", ("golden",)), Part("others"), whole, below))
    assert lanes.main(["-v"]) == 0
    said = capfd.readouterr().out
    assert [said.count(f"::test_{name} PASSED") for name in (*NAMES, "large")] == [1, 1, 1, 1, 1]
    parts = shown(said)
    assert "1 passed" in parts["whole"]
    assert "1 passed" in parts["below"]


def test_a_process_that_has_ended_makes_room_for_the_next_part(
    tree: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(lanes, "AT_ONCE", 1)
    (tree / "golden" / "test_golden.py").write_text("def test_wrong(): assert 1 == 2\n")
    assert lanes.main([]) == 1
    said = capfd.readouterr().out
    assert said.partition("== the parts")[0].count(" passed in ") == 2
    assert "assert 1 == 2" in said


def test_a_process_that_outlives_pytest_is_not_waited_for(tree: Path) -> None:
    code = """
import pathlib, subprocess, sys

def test_it(capfd):
    with capfd.disabled():
        process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    pathlib.Path(__file__).with_name("pid").write_text(str(process.pid))
"""
    (tree / "golden" / "test_golden.py").write_text(code)
    assert lanes.main(["--part", "golden"]) == 0
    os.kill(int((tree / "golden" / "pid").read_text()), signal.SIGKILL)


@pytest.mark.parametrize("name", ["golden", "integration", "unit"])
def test_a_failure_in_any_is_one(tree: Path, name: str, capfd: pytest.CaptureFixture[str]) -> None:
    (tree / name / f"test_{name}.py").write_text("def test_wrong(): assert 1 == 2\n")
    assert lanes.main([]) == 1
    said = capfd.readouterr().out
    assert "assert 1 == 2" in said
    assert said.splitlines()[-1].startswith("FAILED ")
    assert said.endswith(f"test_{name}.py::test_wrong\n")


def test_kernels_that_cannot_be_compiled_are_a_failure(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "compiled", lambda environment: Ended(1, "wrong", 0.5))
    assert lanes.main([]) == 1


def test_quick_tests_are_shared_out_in_another_way(tree: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert lanes.main(["--quick"]) == 0
    parts = shown(capfd.readouterr().out)
    assert set(parts) == {"unit", "others"}
    assert "1 passed" in parts["unit"]
    assert "4 passed" in parts["others"]


def test_options_reach_all(tree: Path) -> None:
    assert lanes.main(["-k", "golden"]) == 0
    assert lanes.exit_code([5, 5]) == 5


def test_one_part_can_be_run_alone(tree: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert lanes.main(["--part", "golden"]) == 0
    assert set(shown(capfd.readouterr().out)) == {"golden"}
    assert lanes.main(["--part", "gold"]) == 2
    assert "there is no part gold; there are golden, databases, others" in capfd.readouterr().out


def test_a_full_run_goes_on_where_it_was_ended(
    tree: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    wrong = tree / "golden" / "test_golden.py"
    wrong.write_text("def test_wrong(): assert 1 == 2\n")
    assert lanes.main(["--full"]) == 1
    wrong.write_text("def test_right(): pass\n")
    capfd.readouterr()
    assert lanes.main(["--full"]) == 0
    said = capfd.readouterr().out
    assert set(shown(said)) == {"kernels", "golden"}
    assert "databases: passed at this commit before" in said
    assert lanes.main(["--full", "--again", "--part", "others"]) == 0
    assert set(shown(capfd.readouterr().out)) == {"others"}
    # Another commit.
    monkeypatch.setattr(lanes, "commit", lambda: "def")
    assert lanes.main(["--full"]) == 0
    assert set(shown(capfd.readouterr().out)) == {"kernels", "golden", "databases", "others"}


def test_a_part_of_which_an_option_left_some_tests_has_not_passed(
    tree: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert lanes.main(["--full", "-k", "golden", "--part", "golden"]) == 0
    capfd.readouterr()
    assert lanes.main(["--full", "--part", "golden"]) == 0
    assert set(shown(capfd.readouterr().out)) == {"golden"}


def test_what_passed_in_a_tree_with_changes_counts_for_no_later_run(tmp_path: Path) -> None:
    Passed(tmp_path / "full.tsv", "").add("golden")
    assert "golden" not in Passed(tmp_path / "full.tsv", "")
    Passed(tmp_path / "full.tsv", "abc").add("golden")
    assert "golden" in Passed(tmp_path / "full.tsv", "abc")
    assert "golden" not in Passed(tmp_path / "full.tsv", "def")


def test_a_tree_with_changes_has_no_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tests").mkdir()
    monkeypatch.setattr(lanes, "HERE", tmp_path / "tests")
    assert lanes.commit() == ""

    def git(*words: str) -> None:
        named = ("-c", "user.name=n", "-c", "user.email=e")
        subprocess.run(["git", *named, *words], cwd=tmp_path, check=True, capture_output=True)

    git("init")
    (tmp_path / "file").write_text("a")
    git("add", ".")
    git("commit", "-m", "first")
    assert len(lanes.commit()) == 40
    (tmp_path / "file").write_text("b")
    assert lanes.commit() == ""


def test_the_seconds_of_each_test_are_told(tree: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code = "import time, pytest\n@pytest.fixture\ndef slow(): time.sleep(0.2)\ndef test_golden(slow): pass\n"
    (tree / "golden" / "test_golden.py").write_text(code)
    assert lanes.main([]) == 0
    said = capfd.readouterr().out.partition("== the slowest tests")[2]
    assert said.splitlines()[1].endswith(" s  tests/golden/test_golden.py::test_golden")
    head, first, *others = (lanes.BUILD / "durations.tsv").read_text().splitlines()
    assert head.split("\t") == ["seconds", "setup", "call", "teardown", "part", "test"]
    seconds, setup, _, _, part, test = first.split("\t")
    assert (part, test) == ("golden", "tests/golden/test_golden.py::test_golden")
    assert float(seconds) >= float(setup) >= 0.2
    assert len(others) == 4


def test_a_run_whose_time_is_over_has_failed(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    monkeypatch.setenv(conftest.UNTIL, str(time.time() + 3600))
    conftest.pytest_runtest_setup(request.node)
    monkeypatch.setenv(conftest.UNTIL, str(time.time() - 1))
    with pytest.raises(pytest.exit.Exception, match="not all tests were run") as ended:
        conftest.pytest_runtest_setup(request.node)
    assert ended.value.returncode == 1
