"""SQL Server's own part of events: change_lsn, commit_lsn and event_serial_no in source blocks, and its types."""

from tailrace.connectors.sqlserver.values import declared
from tailrace.connectors.sqlserver.values.conversions import TYPES
from tailrace.events.captured import CapturedForm

FORM = CapturedForm(TYPES, declared, serial=True)
