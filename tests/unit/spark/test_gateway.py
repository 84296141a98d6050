"""A JVM that ends or hangs before it listens is reported."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tailrace.errors import JvmLost
from tailrace.spark.startup import gateway


def submits(script: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Return a Spark whose `spark-submit` is `script`."""
    (folder / "bin").mkdir()
    path = folder / "bin" / "spark-submit"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setenv("SPARK_HOME", str(folder))


@pytest.mark.parametrize(("end", "words"), [("exit 0", "exit code 0"), ("kill -9 $$", "SIGKILL")])
def test_a_jvm_that_ends_at_its_start_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str, words: str
) -> None:
    submits(end, tmp_path, monkeypatch)
    with pytest.raises(JvmLost, match=words):
        gateway.Launch({}).connect()


def test_a_jvm_that_never_listens_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk may end its main thread, while its other threads keep it alive."""
    submits(f"echo $$ > {tmp_path}/pid; exec sleep 1000", tmp_path, monkeypatch)
    with pytest.raises(JvmLost, match="has not begun to listen within"):
        gateway.Launch({}).connect(patience_s=2)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_a_jvm_is_given_the_settings_and_tells_where_it_listens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = r"printf '\000\000\020\341\000\000\000\006secret'"
    submits(
        f'echo "$@" > {tmp_path}/arguments\n{told} > "$_PYSPARK_DRIVER_CONN_INFO_PATH.new"\n'
        'mv "$_PYSPARK_DRIVER_CONN_INFO_PATH.new" "$_PYSPARK_DRIVER_CONN_INFO_PATH"\ncat > /dev/null',
        tmp_path,
        monkeypatch,
    )
    launched = gateway.Launch({"spark.a": "b c"})
    assert launched.listening(30) == (4321, "secret")
    assert (tmp_path / "arguments").read_text() == "--conf spark.a=b c pyspark-shell\n"
    # The end of its input ends it.
    process = launched._process
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(30) == 0


def test_a_jvm_that_nobody_waits_for_is_ended_with_its_scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from_it, to_us = os.pipe()
    submits(f"sleep 1000 & echo begun > /dev/fd/{to_us}; wait", tmp_path, monkeypatch)
    launched = gateway.Launch({}, keep=(to_us,))
    os.close(to_us)
    with os.fdopen(from_it) as pipe:
        assert pipe.readline() == "begun\n"
        launched.abandon()
        # Nobody has the other end any more.
        assert pipe.read() == ""
    launched.abandon()
    assert launched._process.returncode == -9
    assert not Path(launched._folder.name).exists()


def test_the_jvm_that_writes_the_command_is_a_small_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    submits(f'echo "$SPARK_LAUNCHER_OPTS|$SPARK_HOME" > {tmp_path}/told', tmp_path, monkeypatch)
    monkeypatch.setenv("SPARK_LAUNCHER_OPTS", "-Dmine=1")
    launched = gateway.Launch({})
    launched._process.wait(30)
    launched.abandon()
    assert (tmp_path / "told").read_text() == f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Dmine=1|{tmp_path}\n"
