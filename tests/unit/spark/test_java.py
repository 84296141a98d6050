"""The first Java runtime that is new enough is found, and started without options that it does not know."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tailrace.errors import PrerequisiteError
from tailrace.spark.startup import java
from tailrace.spark.startup.java import find_java, java_home, names_collector


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No runtime of this machine is found."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(java.shutil, "which", lambda name: None)
    monkeypatch.setattr(java.importlib.util, "find_spec", lambda name: None)


def runtime(folder: Path, text: str) -> Path:
    """Make a program that prints this text as its version."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\n[ $1 = -version ] && echo '{text}' >&2 || echo \"$@\"\n")
    program.chmod(0o755)
    return program


@pytest.mark.parametrize(("text", "version"), [('openjdk version "21.0.2" 2024-01-16', 21), ('java version "17"', 17)])
def test_java_home_is_taken_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, version: int) -> None:
    program = runtime(tmp_path / "home", text)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(java.shutil, "which", lambda name: str(runtime(tmp_path / "path", 'version "25"')))
    assert find_java() == (program, version)


def test_a_runtime_that_is_too_old_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime(tmp_path / "home", 'java version "1.8.0_392"')
    program = runtime(tmp_path / "path", 'openjdk version "17.0.9"')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(java.shutil, "which", lambda name: str(program))
    assert find_java() == (program, 17)


def test_runtimes_that_do_not_serve_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = runtime(tmp_path / "path", 'java version "1.8.0_392"')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    monkeypatch.setattr(java.shutil, "which", lambda name: str(old))
    with pytest.raises(PrerequisiteError) as caught:
        find_java()
    assert caught.value.message == (
        f"Spark needs Java 17 or newer, and there is none (JAVA_HOME={tmp_path / 'gone'} has none that runs; "
        f"{old} has version 8)."
    )
    assert "[java]" in caught.value.remedy


def test_without_any_runtime_the_error_says_what_to_install() -> None:
    with pytest.raises(PrerequisiteError, match=r"Spark needs Java 17 or newer, and there is none\."):
        find_java()


def test_a_program_that_tells_no_version_counts_as_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime(tmp_path / "home", "what?")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    with pytest.raises(PrerequisiteError, match="has none that runs"):
        find_java()


@pytest.mark.parametrize(
    ("version", "passed"),
    [
        (17, "--add-opens=java.base/sun.security.action=ALL-UNNAMED -cp a b"),
        (22, "--enable-native-access=ALL-UNNAMED --add-opens=java.base/sun.security.action=ALL-UNNAMED -cp a b"),
        (24, "--enable-native-access=ALL-UNNAMED --sun-misc-unsafe-memory-access=allow -cp a b"),
    ],
)
def test_options_that_the_runtime_does_not_know_are_dropped(tmp_path: Path, version: int, passed: str) -> None:
    home = java_home((runtime(tmp_path / "real", "-"), version))
    assert java_home((tmp_path / "real" / "bin" / "java", version)) == home
    given = [
        "--add-modules=jdk.incubator.vector", "--add-opens=java.base/sun.security.action=ALL-UNNAMED", "-cp", "a b",
    ]  # fmt: skip
    done = subprocess.run([home / "bin" / "java", *given], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == passed


def test_a_collector_is_named_by_options_or_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS"):
        monkeypatch.delenv(name, raising=False)
    assert names_collector("-Xmx1g -XX:+UseZGC")
    assert not names_collector("-Xmx1g -XX:+UseStringDeduplication")
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-XX:+UseParallelGC")
    assert names_collector()
