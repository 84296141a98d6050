"""Tests in several processes are all tests, and a failure in any of them is one."""

from __future__ import annotations

import os
import signal
import time
from contextlib import nullcontext
from pathlib import Path

import pytest

from tests import conftest, lanes

NAMES = ("golden", "integration", "unit", "fresh")


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of tests with one in each part, where `lanes` looks for them."""
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    for name in NAMES:
        (tmp_path / "tests" / name).mkdir(parents=True)
        (tmp_path / "tests" / name / f"test_{name}.py").write_text(f"def test_{name}(): pass\n")
    (tmp_path / "tests" / "helpers").mkdir()
    (tmp_path / lanes.SERVER).mkdir()
    (tmp_path / lanes.SERVER / "test_server.py").write_text("def test_server(): pass\n")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setattr(lanes, "HERE", tmp_path / "tests")
    monkeypatch.setattr(lanes, "classes", lambda environment: nullcontext())
    monkeypatch.setattr(lanes, "PARTS", (("golden",), ("integration", "gone"), lanes.OTHERS))
    return tmp_path / "tests"


def test_every_directory_is_run_by_one_part(tree: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert lanes.main(["-v"]) == 0
    said = capfd.readouterr().out
    assert [said.count(f"::test_{name} PASSED") for name in (*NAMES, "server")] == [1, 1, 1, 1, 1]
    *_, first, second, others = said.splitlines()
    assert others.startswith("== fresh, unit, tdsserver: ")
    assert "3 passed" in others
    assert first.startswith("== golden: ")
    assert "1 passed" in first
    assert second.startswith("== integration: ")
    assert "1 passed" in second


def test_a_directory_below_one_is_run_by_its_own_part_alone(
    tree: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tree / "integration" / "large").mkdir()
    (tree / "integration" / "large" / "test_large.py").write_text("def test_large(): pass\n")
    monkeypatch.setattr(
        lanes, "PARTS", (("golden",), lanes.OTHERS, ("integration",), ("integration/large", "integration/gone"))
    )
    assert lanes.main(["-v"]) == 0
    said = capfd.readouterr().out
    assert [said.count(f"::test_{name} PASSED") for name in (*NAMES, "large")] == [1, 1, 1, 1, 1]
    *_, whole, below = said.splitlines()
    assert whole.startswith("== integration: ")
    assert "1 passed" in whole
    assert below.startswith("== integration/large: ")
    assert "1 passed" in below


def test_a_process_that_has_ended_makes_room_for_the_next_part(
    tree: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(lanes, "AT_ONCE", 1)
    (tree / "golden" / "test_golden.py").write_text("def test_wrong(): assert 1 == 2\n")
    assert lanes.main([]) == 1
    said = capfd.readouterr().out
    assert said.count(" passed in ") == 4
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
    assert lanes.main([]) == 0
    os.kill(int((tree / "golden" / "pid").read_text()), signal.SIGKILL)


@pytest.mark.parametrize("name", ["golden", "integration", "unit"])
def test_a_failure_in_any_is_one(tree: Path, name: str, capfd: pytest.CaptureFixture[str]) -> None:
    (tree / name / f"test_{name}.py").write_text("def test_wrong(): assert 1 == 2\n")
    assert lanes.main([]) == 1
    assert "assert 1 == 2" in capfd.readouterr().out


def test_quick_tests_are_shared_out_in_another_way(tree: Path, capfd: pytest.CaptureFixture[str]) -> None:
    option = "def pytest_addoption(parser): parser.addoption('--quick', action='store_true')\n"
    (tree / "conftest.py").write_text(option)
    assert lanes.main(["--quick"]) == 0
    *_, first, others = capfd.readouterr().out.splitlines()
    assert others.startswith("== fresh, golden, integration, tdsserver: ")
    assert first.startswith("== unit: ")


def test_options_reach_all(tree: Path) -> None:
    assert lanes.main(["-k", "golden"]) == 0
    assert lanes.main(["-k", "nothing"]) == 5


def test_a_run_whose_time_is_over_has_failed(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    monkeypatch.setenv(conftest.UNTIL, str(time.time() + 3600))
    conftest.pytest_runtest_setup(request.node)
    monkeypatch.setenv(conftest.UNTIL, str(time.time() - 1))
    with pytest.raises(pytest.exit.Exception, match="not all tests were run") as ended:
        conftest.pytest_runtest_setup(request.node)
    assert ended.value.returncode == 1
