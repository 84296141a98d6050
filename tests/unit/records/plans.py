"""A column in the form of a layout, for tests that need no table."""

from __future__ import annotations

from tailrace.columns import Column
from tailrace.connectors.postgres.log.form import FORM
from tests.unit.events.changes import plain_settings, table

(NAME,), _ = FORM.columns(table("t", [Column("name", "text", 25)]), plain_settings())
"""The plan of the column `name`."""
