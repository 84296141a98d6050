"""The commands for tables check their arguments, and `import tailrace` loads no more than it needs."""

from __future__ import annotations

import datetime
import subprocess
import sys
from pathlib import Path

import pytest

import tailrace
from tailrace.command.cli import main
from tailrace.command.maintain import moment
from tailrace.errors import ConfigError
from tailrace.sinks.tables.names import absolute


def test_where_and_when() -> None:
    assert moment("2024-02-03T04:05:06") == datetime.datetime(2024, 2, 3, 4, 5, 6, tzinfo=datetime.UTC)
    assert moment("2024-02-03T04:05:06+02:00") == datetime.datetime(2024, 2, 3, 2, 5, 6, tzinfo=datetime.UTC)
    assert moment("0000000001A3B2C8") == "0000000001A3B2C8"
    assert moment(None) is None
    with pytest.raises(ConfigError, match="is not a time"):
        moment("2024-02-33")
    assert absolute("s3a://lake/shop/") == "s3a://lake/shop"
    assert absolute("lake") == str(Path("lake").absolute())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["maintain", "/x"], "has nothing to do"),
        (["maintain", "/x", "--vacuum", "--retain", "0"], "between 1 and 168"),
        (["maintain", "/x", "--vacuum", "--retain", "-5.5"], "between 1 and 168"),
        (["rebuild", "/x", "/y", "--mode", "history", "--upsert-keep-deletes"], "only for --mode latest"),
        (["rebuild", "/x", "/y", "--mode", "latest", "--at", "2024-13-01"], "is not a time"),
    ],
)
def test_wrong_arguments(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert said in capsys.readouterr().err


def test_a_file_of_another_sink_keeps_no_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "application.properties"
    source = {"database.hostname": "h", "database.user": "u", "database.dbname": "d", "topic.prefix": "p"}
    entries = ["debezium.sink.type=console", "debezium.source.connector.class=PostgresConnector"]
    entries += [f"debezium.source.{name}={text}" for name, text in source.items()]
    file.write_text("\n".join(entries))
    assert main(["maintain", str(file), "--optimize"]) == 2
    assert "has the sink console, which keeps no tables" in capsys.readouterr().err


def test_what_reads_tables_is_loaded_when_it_is_asked_for() -> None:
    program = (
        "import sys, tailrace; assert not {'pyspark', 'numpy', 'pyarrow'} & set(sys.modules); "
        "print(tailrace.read_at.__name__, tailrace.complete_until.__name__, 'pyspark' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["read_at", "complete_until", "False"]
    with pytest.raises(AttributeError, match="no attribute 'write_at'"):
        tailrace.write_at  # noqa: B018
