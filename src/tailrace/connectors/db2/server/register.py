"""The register of the capture program: the tables with a change table, and the columns of change tables. Any
process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tailrace.config import Config
from tailrace.connectors.db2.server.catalog import CatalogColumn, quoted
from tailrace.connectors.db2.server.connection import Connection

CONTROL_COLUMNS = "IBMSNAP_"
"""The prefix of a change table's own columns."""


@dataclass(frozen=True, slots=True)
class Registered:
    """A row of IBMSNAP_REGISTER.

    `old` is CD_OLD_SYNCHPOINT, `pairs` CHG_UPD_TO_DEL_INS, `prefix` the prefix of before images, "" if there are none.
    """

    schema: str
    table: str
    change_schema: str
    change_table: str
    old: bytes | None
    state: str
    pairs: bool
    prefix: str

    @property
    def name(self) -> str:
        """The change table with its schema."""
        return f"{self.change_schema}.{self.change_table}"


def control_table(config: Config, table: str) -> str:
    """Return a control table's full name."""
    return quoted(config["cdc.control.schema"], table)


def registered(connection: Connection, config: Config) -> list[Registered]:
    """Return the rows of IBMSNAP_REGISTER for tables with a change table, in the order of the tables."""
    rows = connection.rows(
        "SELECT SOURCE_OWNER, SOURCE_TABLE, CD_OWNER, CD_TABLE, CD_OLD_SYNCHPOINT, STATE, CHG_UPD_TO_DEL_INS, "
        f"BEFORE_IMG_PREFIX FROM {control_table(config, 'IBMSNAP_REGISTER')} WHERE SOURCE_OWNER <> '' "
        "AND GLOBAL_RECORD <> 'Y' AND CD_TABLE IS NOT NULL ORDER BY SOURCE_OWNER, SOURCE_TABLE, SOURCE_VIEW_QUAL"
    )
    set_schema = config["cdc.change.tables.schema"]
    found: dict[tuple[str, str], Registered] = {}
    for owner, table, cd_owner, cd_table, old, state, pairs, prefix in rows:
        # some tools write CD_TABLE in quotes; names may be padded like CHAR columns
        row = Registered(
            _name(owner),
            _name(table),
            set_schema or _name(cd_owner or config["cdc.control.schema"]),
            _name(cd_table).strip('"'),
            None if old is None else bytes(old),
            state or "",
            (pairs or "N") == "Y",
            (prefix or "").strip(),
        )
        # further rows are of views over the same table
        found.setdefault((row.schema, row.table), row)
    return list(found.values())


def _name(text: str) -> str:
    return text.rstrip()


def captured_columns(columns: Sequence[CatalogColumn], source: Sequence[CatalogColumn], prefix: str) -> list[str]:
    """Return the captured columns of a change table, without the program's own columns and without before images.

    For a large object the program may record only that it was changed, in a column of one character under the same
    name. Such a column is left out, since its values are not those of the source.
    """
    of_source = {column.name: column for column in source}
    found = []
    for column in columns:
        if column.name.startswith(CONTROL_COLUMNS):
            continue
        known = of_source.get(column.name)
        is_image = prefix and column.name.startswith(prefix) and column.name[len(prefix) :] in of_source
        if known is None and is_image:
            continue
        if known is not None and known.is_lob and not column.is_lob:
            continue
        found.append(column.name)
    return found
