"""The sink `tables`, which writes lakehouse tables, and reads of its tables at one source position."""
