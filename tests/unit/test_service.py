"""Pipelines as services: restarts by exit code, and the room that a run needs and is told to lack."""

from __future__ import annotations

import configparser
import os
import re
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from tailrace import errors, sinks
from tailrace.command import cli, room
from tailrace.command.stop_request import INTERRUPTED
from tailrace.connectors import registry
from tailrace.errors import TailraceError
from tests.unit.test_cli import NOWHERE, write

ROOT = Path(__file__).parents[2]
SERVICE = ROOT / "examples" / "service"
CODES = {kind.exit_code for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, TailraceError)}


def numbers(text: str) -> set[int]:
    return {int(one) for one in re.findall(r"\d+", text)}


def test_the_unit_restarts_after_the_codes_that_a_restart_may_change() -> None:
    unit = configparser.ConfigParser(strict=True, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment]
    unit.read(SERVICE / "tailrace@.service")
    service = unit["Service"]
    assert service["Restart"] == "on-failure"
    assert numbers(service["RestartPreventExitStatus"]) == cli.LASTING
    command = service["ExecStart"].split()
    assert cli._parser().parse_args(command[1:]).file == "/etc/tailrace/%i.properties"


def test_the_page_has_the_same_codes_and_every_code_of_a_run() -> None:
    page = (ROOT / "docs" / "operate" / "exit-codes.md").read_text()
    restarted, left = re.search(r"\| restart \| leave stopped \|\n\|[-|]+\n\| ([\d, ]+) \| ([\d, ]+) \|", page).groups()  # type: ignore[union-attr]
    assert numbers(left) == cli.LASTING
    # a failure of any other kind may pass
    assert numbers(restarted) | cli.LASTING | {TailraceError.exit_code} == CODES
    assert not numbers(restarted) & cli.LASTING


@pytest.mark.parametrize("code", sorted({0, INTERRUPTED} | CODES))
def test_the_containers_script_ends_with_0_after_a_code_that_a_restart_does_not_change(
    tmp_path: Path, code: int
) -> None:
    command = tmp_path / "tailrace"
    command.write_text(f'#!/bin/sh\necho "$@"\nexit {code}\n')
    command.chmod(0o755)
    path = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    given = ["sh", str(SERVICE / "run.sh"), "f.properties", "--checkpoint", "a b"]
    done = subprocess.run(given, env=path, capture_output=True, text=True, check=False)
    assert done.stdout == "run f.properties --checkpoint a b\n"
    assert done.returncode == (0 if code in cli.LASTING else code)


def test_the_containers_script_passes_a_stop_on_and_waits(tmp_path: Path) -> None:
    command = tmp_path / "tailrace"
    command.write_text("#!/bin/sh\ntrap 'echo stopped; exit 0' TERM\necho begun\nwhile :; do sleep 0.05; done\n")
    command.chmod(0o755)
    path = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    running = subprocess.Popen(["sh", str(SERVICE / "run.sh"), "f"], env=path, stdout=subprocess.PIPE, text=True)
    assert running.stdout is not None
    assert running.stdout.readline() == "begun\n"
    running.terminate()
    assert running.stdout.read() == "stopped\n"
    assert running.wait() == 0


def test_a_stop_that_comes_before_the_run_has_begun_is_passed_on(tmp_path: Path) -> None:
    command = tmp_path / "tailrace"
    # the run stops the script, which has perhaps not set anything yet, and then waits for its own end
    command.write_text("#!/bin/sh\ntrap 'exit 0' TERM\nkill -TERM $PPID\nwhile :; do sleep 0.05; done\n")
    command.chmod(0o755)
    path = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    given = ["sh", str(SERVICE / "run.sh"), "f"]
    for _ in range(20):
        assert subprocess.run(given, env=path, timeout=60, check=False).returncode == 0


def test_the_files_for_containers_name_what_is_there() -> None:
    compose = (SERVICE / "compose.yaml").read_text()
    image = (SERVICE / "Dockerfile").read_text()
    assert "restart: on-failure" in compose
    named = {*re.findall(r"dockerfile: (\S+)", compose), *re.findall(r"COPY (\S+/\S+)", image)}
    assert named == {"examples/service/Dockerfile", "examples/service/run.sh"}
    # its base has neither Spark nor Java, which tailrace does not bring by itself
    assert set(re.search(r"'\.\[(.+?)\]'", image)[1].split(",")) >= {"spark", "java"}  # type: ignore[index]
    assert all((ROOT / one).is_file() for one in named)


# --- the room ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "count"), [("2g", 2 << 30), ("777m", 777 << 20), ("512", 512 << 20), ("1TB", 1 << 40), ("much", 0)]
)
def test_sizes_are_read_as_spark_reads_them(text: str, count: int) -> None:
    assert room.size(text) == count


def test_free_memory_is_that_of_the_machine_or_of_the_control_group(tmp_path: Path) -> None:
    proc, groups = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "self").mkdir(parents=True)
    (groups / "a.slice").mkdir(parents=True)
    assert room.available(proc, groups) is None
    (proc / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable:    4096 kB\n")
    (proc / "self" / "cgroup").write_text("0::/a.slice\n")
    assert room.available(proc, groups) == 4 << 20
    for name, text in (("max", "3145728\n"), ("current", "2097152\n"), ("stat", "anon 1\ninactive_file 524288\n")):
        (groups / "a.slice" / f"memory.{name}").write_text(text)
    assert room.available(proc, groups) == 1 << 20 | 1 << 19
    (groups / "a.slice" / "memory.max").write_text("max\n")
    assert room.available(proc, groups) == 4 << 20


def test_what_a_run_lacks_is_a_warning_with_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    overrides = {"debezium.sink.type": "noop", "checkpoint.location": str(tmp_path / "not" / "yet")}
    run = registry.read(write(tmp_path, NOWHERE + "topic.prefix=t\n"), overrides, sinks=sinks.names())
    monkeypatch.setattr(room, "available", lambda: 64 << 30)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=64 << 30))
    assert [one.level for one in room.findings(run, {})] == ["ok"]
    monkeypatch.setattr(room, "available", lambda: 4 << 30)
    (memory,) = room.findings(run, {"spark.driver.memory": "8g"})
    assert re.match(
        r"The run may need \d\.\d GB of memory, 8\.0 GB of it as the JVM's heap, and 4\.0 GB are f", memory.text
    )
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=50 << 20))
    waits, state = room.findings(run, {})
    assert "changes that wait for Spark may need 1.0 GB" in waits.text
    assert f"{tmp_path / 'not' / 'yet'} has 50 MB free" in state.text
    assert "TMPDIR" in waits.remedy
