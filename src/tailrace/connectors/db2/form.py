"""Db2's own part of events: change_lsn and commit_lsn in source blocks, and its types."""

from tailrace.connectors.db2.values import declared
from tailrace.connectors.db2.values.conversions import TYPES
from tailrace.events.captured import CapturedForm

FORM = CapturedForm(TYPES, declared, serial=False)
