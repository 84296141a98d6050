"""The tables that a query captures now, and the log position up to which they are valid. Any process."""

from __future__ import annotations

from contextlib import closing

from tailrace.config import Config, TableFilter
from tailrace.connectors.binlog.log.form import form_of
from tailrace.connectors.binlog.log.position import position_text
from tailrace.connectors.binlog.schema import catalog
from tailrace.connectors.binlog.schema.ddl.tokens import Unparsable
from tailrace.connectors.binlog.schema.tables import aligned, schema_of
from tailrace.connectors.binlog.server.connection import connect, dialect_of
from tailrace.connectors.binlog.server.errors import explained
from tailrace.connectors.binlog.snapshot.point import end_of_log
from tailrace.connectors.captured_tables import CapturedTables
from tailrace.errors import PrerequisiteError
from tailrace.events.admission import Admission
from tailrace.events.event_settings import EventSettings


def captured(config: Config, settings: EventSettings) -> CapturedTables:
    """See tailrace.connectors.captured_tables. Raises ConnectionFailed, PrerequisiteError, ConfigError."""
    return explained(_captured)(config, settings)


def _captured(config: Config, settings: EventSettings) -> CapturedTables:
    dialect, includes = dialect_of(config), TableFilter(config).includes
    with closing(connect(config)) as session:
        names = [one.id for one in catalog.names(session) if catalog.holds_rows(one) and includes(*one.id)]
        try:
            # definitions without AUTO_INCREMENT's next number, which every insert changes
            found, (file, end, _) = catalog.at_one_position(
                lambda: {name: one._replace(text="") for name, one in catalog.created(session, names, dialect).items()},
                lambda: end_of_log(session),
            )
        except Unparsable as fault:
            raise unread(fault) from None
    admission = Admission(settings, form_of(dialect))
    # a definition from the catalog has other numbers than the log's history gives its columns
    tables = tuple(admission.admit(aligned(schema_of(found[name].table), None)) for name in sorted(found))
    # `end` is where the next transaction begins
    return CapturedTables(tables, position_text(0, file, max(end - 1, 0)), form_of(dialect))


def unread(fault: Unparsable) -> PrerequisiteError:
    return PrerequisiteError(
        f"The definition of a captured table is not understood: {fault.what}.",
        "Leave the table out with table.exclude.list, and report its definition.",
    )
