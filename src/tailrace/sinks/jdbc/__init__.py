"""Rows of a database as a place for records: the sink `jdbc`."""
