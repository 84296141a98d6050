"""Wrong master URLs and settings of the command line give one clear error before Spark starts."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, cast

import pytest

from tailrace.command import cli
from tailrace.errors import ConfigError, ConnectionFailed, SinkError
from tailrace.spark import cluster

PIPELINE = "database.hostname=127.0.0.1\ndatabase.port=1\ndatabase.user=u\ndatabase.dbname=d\ndatabase.password=p\n"


@pytest.mark.parametrize(
    "master",
    ["local", "local[*]", "local[4]", "local[*,3]", "spark://one:7077", "spark://one:7077,two:7078", "yarn",
     "k8s://https://one:6443", "local-cluster[2,1,1024]", " spark://one:7077 "],
)  # fmt: skip
def test_master_urls_of_spark_are_taken(master: str) -> None:
    assert cluster.checked_master(master) == master.strip()


@pytest.mark.parametrize(
    "master", ["", "spark", "spark://one", "spark://:7077", "spark://one:70777", "one:7077", "http://one:7077",
               "local[0]", "local[x]", "spark://one:7077/path", "yarn-client", "mesos://one:5050"],
)  # fmt: skip
def test_any_other_master_is_an_error_that_says_what_to_write(master: str) -> None:
    with pytest.raises(ConfigError) as raised:
        cluster.checked_master(master)
    assert f"--master {master}" in raised.value.message
    assert raised.value.remedy is not None
    assert "spark://HOST:PORT" in raised.value.remedy


def test_tasks_run_in_this_process_only_with_a_local_master() -> None:
    assert cluster.is_local("local[2]")
    assert not cluster.is_local("local-cluster[2,1,1024]")
    assert not cluster.is_local("spark://one:7077")


def test_settings_are_names_and_values() -> None:
    assert cluster.settings([]) == {}
    entries = ["spark.executor.memory=2g", "spark.executor.extraJavaOptions=-Da=b -Dc=d", "spark.jars="]
    assert cluster.settings(entries) == {
        "spark.executor.memory": "2g",
        "spark.executor.extraJavaOptions": "-Da=b -Dc=d",
        "spark.jars": "",
    }


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("spark.executor.memory", "has no NAME=VALUE"),
        ("=2g", "has no NAME=VALUE"),
        ("slot.name=x", "is not a setting of Spark"),
        ("spark.master=yarn", "spark.master is given"),
    ],
)
def test_malformed_settings_are_told(entry: str, said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        cluster.settings([entry])
    assert said in raised.value.message
    assert raised.value.remedy


def test_the_value_of_a_malformed_setting_is_not_shown() -> None:
    with pytest.raises(ConfigError) as raised:
        cluster.settings(["fs.s3a.secret.key=hidden"])
    assert "hidden" not in str(raised.value)


def test_a_master_that_does_not_answer_is_told_at_once() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        with pytest.raises(ConnectionFailed) as raised:
            cluster.demand(f"spark://127.0.0.1:{port}")
    assert f"No Spark master answers at spark://127.0.0.1:{port}" in raised.value.message


def test_one_of_several_masters_is_enough() -> None:
    with socket.create_server(("127.0.0.1", 0)) as open_, socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        cluster.demand(f"spark://127.0.0.1:{closed.getsockname()[1]},127.0.0.1:{open_.getsockname()[1]}")


def test_masters_that_are_no_addresses_are_left_to_spark() -> None:
    for master in ("local[2]", "yarn", "k8s://https://nowhere.invalid:6443"):
        cluster.demand(master)


@pytest.mark.parametrize("arguments", [["--master", "spark://one"], ["--conf", "spark.executor.memory"]])
def test_the_command_ends_with_the_code_of_a_wrong_configuration(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    path = tmp_path / "connector.properties"
    path.write_text(PIPELINE)
    assert cli.main(["run", str(path), *arguments]) == 2
    said = capsys.readouterr().err
    assert arguments[0] in said
    assert "Traceback" not in said


def test_a_second_master_beside_that_of_spark_submit_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    path = tmp_path / "connector.properties"
    path.write_text(PIPELINE)
    assert cli.main(["run", str(path), "--master", "yarn"]) == 2
    assert "spark-submit" in capsys.readouterr().err


class Cluster:
    """A session of a cluster whose executors see the files that `sees` allows."""

    def __init__(self, sees: Callable[[str], bool] = lambda _: True, master: str = "spark://one:7077") -> None:
        self.sparkContext, self.master, self.defaultParallelism = self, master, 3
        self._sees, self.probes = sees, list[str]()

    def parallelize(self, numbers: Iterable[int], count: int) -> Cluster:
        assert len(list(numbers)) == count == 3
        return self

    def map(self, function: Callable[[int], tuple[str, bool]]) -> Cluster:
        assert function(0) == (socket.gethostname(), True)
        return self

    def collect(self) -> list[tuple[str, bool]]:
        return [(host, self._sees(host)) for host in ("b", "a", "b")]


def test_a_directory_that_all_executors_see_is_taken_and_left_clean(tmp_path: Path) -> None:
    cluster.demand_shared(cast("Any", Cluster()), str(tmp_path / "new"))
    cluster.demand_shared(cast("Any", Cluster()), f"file://{tmp_path}/new")
    assert list((tmp_path / "new").iterdir()) == []


def test_executors_that_do_not_see_a_directory_are_named(tmp_path: Path) -> None:
    with pytest.raises(SinkError, match=rf"The executors on a, b do not see the driver's directory {tmp_path}\."):
        cluster.demand_shared(cast("Any", Cluster(lambda _: False)), str(tmp_path))
    with pytest.raises(SinkError, match="The executors on b do not see"):
        cluster.demand_shared(cast("Any", Cluster(lambda host: host == "a")), str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SinkError, match=r"The directory .*/file/x cannot be written: Not a directory"):
        cluster.demand_shared(cast("Any", Cluster()), str(tmp_path / "file" / "x"))


def test_what_every_process_sees_anyhow_is_not_looked_at(tmp_path: Path) -> None:
    cluster.demand_shared(cast("Any", Cluster(lambda _: False, "local[2]")), str(tmp_path / "a"))
    cluster.demand_shared(cast("Any", Cluster(lambda _: False)), "s3a://lake/a")
    assert not (tmp_path / "a").exists()
