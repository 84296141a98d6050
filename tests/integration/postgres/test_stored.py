"""A checkpoint that an earlier version has written is continued against a server: each later change once.

The stored text has the numbers of a server that is gone, so those of the test's server take their places.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tailrace.connectors.postgres.protocol.position import lsn_value
from tests.fix_postgres import Database
from tests.stored import versions
from tests.stored.__main__ import CHANGES, ROWS

_NUMBERS = """
select 't'::regclass::oid::int8, 't_pkey'::regclass::oid::int8, oid::int8, xmin::text::int8
from pg_publication where pubname = %s
"""


def offset(version: Path, number: int) -> dict[str, Any]:
    """Return the offset of a batch of the stored checkpoint."""
    found: dict[str, Any] = json.loads((version / "checkpoint" / "offsets" / str(number)).read_text().splitlines()[2])
    return found


def here(version: Path, number: int, numbers: tuple[int, ...], at: dict[str, Any]) -> dict[str, Any]:
    """Return the stored offset with the oids `numbers` of this server, and the identity and positions of `at`."""
    first, found = offset(version, 0), offset(version, number)
    inventory = json.loads(first["inventory"])
    key = json.loads(first["schemas"])["tables"][0][1][1][0][0]
    # table, primary key, publication, and the transaction that has altered it
    there = inventory[2][0][0], key, inventory[0], inventory[3]
    replaced = {str(old): str(new) for old, new in zip(there, numbers, strict=True)}
    replaced |= {found["log"][name]: at["log"][name] for name in found["log"] if name != "at_us"}
    if "snapshot" in found:
        replaced[str(found["snapshot"]["lsn"])] = str(lsn_value(at["log"]["idle"]))
        # the next transaction when the rows were read
        replaced[str(found["snapshot"]["xmin"])] = str(numbers[3] + 1)
    text = re.sub(
        "|".join(rf"(?<![\w/]){old}(?![\w/])" for old in replaced), lambda one: replaced[one[0]], json.dumps(found)
    )
    return json.loads(text) | {"server": at["server"]}


@pytest.mark.parametrize("version", versions(), ids=lambda path: path.name)
@pytest.mark.parametrize("number", [0, 1])
def test_a_checkpoint_of_an_earlier_version_is_continued(
    database: Database, query: Any, version: Path, number: int
) -> None:
    publication = f"p_{database.name}".lower()
    database.execute(ROWS, f"create publication {publication} for table t")
    named = {"publication.name": publication, "publication.autocreate.mode": "disabled", "snapshot.mode": "no_data"}
    one = query(**named)
    one.step()
    assert one.committed is not None
    with database.connect() as connection:
        numbers = connection.execute(_NUMBERS, (publication,)).fetchone()
    assert numbers is not None
    if number == 1:
        database.execute(CHANGES)
        one.until(11)
    one.changes.clear()
    one.committed = here(version, number, numbers, one.committed)
    one.kill()
    if number == 0:
        database.execute(CHANGES)
        assert [change[0] for change in one.until(11)] == ["u"] * 6 + ["d"] * 4 + ["c"]
    database.execute("insert into t values (22, 2.5, 'later')")
    assert one.until(len(one.changes) + 1)[-1] == ("c", "t", (b"22", b"2.50", b"later"))
    one.kill()
    database.execute("delete from t where id = 22")
    assert one.until(len(one.changes) + 1)[-1] == ("d", "t", (b"22", None, None))
