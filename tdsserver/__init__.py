"""A test server that speaks TDS 7.4 and models SQL Server's change data capture; README.md says what it is."""
