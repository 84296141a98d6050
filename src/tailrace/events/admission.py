"""Admission: each table's schema gets its key and is checked before its events are made. Planner.

Names lose characters on their way into topics, schemas and fields. Two tables that end in one topic are reported; two
columns of a table that end in one field would hide each other, so that is an error.
"""

from __future__ import annotations

import logging

from tailrace.columns import TableId, TableSchema
from tailrace.errors import ConfigError
from tailrace.events import names
from tailrace.events.form import SourceForm
from tailrace.events.settings import EventSettings
from tailrace.events.shaped import unmasked

log = logging.getLogger("tailrace")


class Admission:
    """Knows the names of every table that came by; called by the planner and by its reader's thread.

    A warning is logged once for each pair of names, and kept in `warnings`.
    """

    def __init__(self, settings: EventSettings, form: SourceForm) -> None:
        self._settings = settings
        self._form = form
        self._topics: dict[str, TableId] = {}
        self._prefixes: dict[str, TableId] = {}
        self.warnings: list[str] = []

    def admit(self, table: TableSchema) -> TableSchema:
        """The table with the key that its events get.

        Raises ConfigError when message.key.columns names a column that it does not have, and when two of its columns
        have one field name.
        """
        keyed = self._settings.shaping.keyed(table)
        self._report_tables(table.id)
        self._check_fields(keyed)
        for column in unmasked(keyed, self._settings, self._form):
            self._warn(
                f"column {column} of {table.id} is to be masked, but its type is none of text: its values are shown as "
                "they are; leave it out with column.exclude.list"
            )
        return keyed

    def _report_tables(self, table: TableId) -> None:
        settings = self._settings
        topic = names.own_topic(settings, table)
        first = self._topics.setdefault(topic, table)
        if first != table:
            self._warn(f"the tables {first} and {table} share the topic {topic}")
            return
        prefix = names.schema_prefix(settings, table)
        first = self._prefixes.setdefault(prefix, table)
        if first != table:
            self._warn(f"the schemas of the tables {first} and {table} share the name {prefix}")

    def _check_fields(self, table: TableSchema) -> None:
        """Values and keys each need fields of different names; consumers may not see case, so that is reported."""
        for plans in (self._form.columns(table, self._settings)[0], self._form.key(table, self._settings)):
            fields: dict[str, str] = {}
            folded: dict[str, str] = {}
            for plan in plans:
                first = fields.setdefault(plan.name, plan.source_name)
                if first != plan.source_name:
                    raise ConfigError(
                        f"The columns {first} and {plan.source_name} of {table.id} both become the field {plan.name}.",
                        "Set field.name.adjustment.mode=avro_unicode, which keeps names apart, or leave one of them "
                        "out with column.exclude.list.",
                    )
                alike = folded.setdefault(plan.name.lower(), plan.source_name)
                if alike != plan.source_name:
                    self._warn(
                        f"the columns {alike} and {plan.source_name} of {table.id} differ only in case: both are shown,"
                        " and a consumer that ignores case sees one"
                    )

    def _warn(self, message: str) -> None:
        if message not in self.warnings:
            self.warnings.append(message)
            log.warning(message)
