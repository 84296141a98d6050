"""The command `tailrace verify`: compares the tables of the sink `tables` with the source, and repairs differences."""
