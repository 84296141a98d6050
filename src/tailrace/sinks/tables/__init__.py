"""Tables of a lakehouse as a place for records: the sink `tables`, and reading its tables at one source position."""
