"""Files that people have written for Debezium pass unchanged, or are refused for a known reason.

`public-files.json` holds connector options and Debezium Server files from public repositories, with hosts, logins and
names replaced.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tailrace.command import migrate
from tailrace.config.properties import parse_properties

FILES = json.loads((Path(__file__).parent / "public-files.json").read_text())
CONNECTORS: dict[str, dict[str, str]] = FILES["connect"]
SERVERS = {name: parse_properties(text) for name, text in FILES["server"].items()}
ENTRIES = CONNECTORS | SERVERS

REFUSED = {
    "connect-55": ["mongodb.include.collection.list is not an option"],
    "connect-57": ["transforms.Reroute.type is missing"],
    "connect-63": ["initial.database is not an option", "server.name is not an", "server.port is not an option"],
    "server-01": ["debezium.sink.type = kinesis is not supported"],
    "server-05": ["debezium.sink.type = eventhubs is not supported"],
    "server-17": ["There is no sink 'iceberg'"],
    "server-19": ["debezium.sink.type = pubsub is not supported"],
}
"""Permanent refusals: names of other programs, a transform without options, and unsupported sinks."""

NEW = re.compile(
    r"transforms\.\w+\.type = (io\.debezium|org\.apache\.kafka\.connect)\.\S+ is not supported: "
    r"(There is no transform|of the transforms there is)"
    r"|(key|value)\.converter = (io\.debezium|io\.confluent|org\.apache\.kafka)\.\S+ is not supported: "
    r"|(key|value)\.converter\.schema\.registry\.url is not supported"
    r"|transforms\.unwrap\.(drop\.tombstones|delete\.handling\.mode) is not supported: it belongs to event\.format=1\.1"
)
"""Refusals for a missing transform or converter."""


@pytest.mark.parametrize("name", ENTRIES)
def test_a_public_file_passes_unless_a_part_is_not_there(name: str) -> None:
    faults = list(migrate.judge(ENTRIES[name]).faults)
    left = [fault for fault in faults if not NEW.match(fault)]
    for reason in REFUSED.get(name, []):
        # A sink is checked only if all options are right.
        if "sink" not in reason or faults == left:
            assert [fault for fault in left if fault.startswith(reason)], faults
        left = [fault for fault in left if not fault.startswith(reason)]
    assert left == []


def test_most_public_files_are_not_refused_for_good() -> None:
    assert len(CONNECTORS.keys() - REFUSED.keys()) >= 32
    assert len(SERVERS.keys() - REFUSED.keys()) >= 6


@pytest.mark.parametrize("name", ENTRIES)
def test_a_cleaned_file_means_the_same_without_a_word(name: str) -> None:
    judgement = migrate.judge(ENTRIES[name])
    if not judgement.passes:
        return
    run = judgement.examination.run
    assert run is not None
    again = migrate.judge(migrate.cleaned(judgement.examination))
    cleaned = again.examination.run
    assert cleaned is not None
    left = [{name: one.source[name] for name in one.source if name not in run.source.idle} for one in (cleaned, run)]
    assert left[0] == left[1]
    assert (cleaned.sink, cleaned.name) == (run.sink, run.name)
    assert {outcome.state for outcome in again.examination.outcomes} == {"kept"}
    # The older names of a transform's options stay, because they have their own effect.
    left_over = ("No sink is named", "transforms.")
    # Values that a start finds elsewhere are still missing here.
    said = [notice for notice in again.examination.notices if not notice.endswith("before a start.")]
    assert [notice for notice in said if not notice.startswith(left_over)] == []


def test_a_secret_is_never_shown(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    marked = re.compile(r"password|url|address|connection\.string|hosts$|servers$|salt|jaas|query$")
    for name, entries in ENTRIES.items():
        given = {entry: "hunter2" if marked.search(entry) else text for entry, text in entries.items()}
        given["column.mask.hash.SHA-256.with.salt.hunter2" if name in CONNECTORS else "debezium.source.odd"] = "a"
        migrate.check(given)
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps({"name": name, "config": given}))
        migrate.migrate(path)
    assert "hunter2" not in capsys.readouterr().out
