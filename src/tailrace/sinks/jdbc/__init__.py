"""The sink `jdbc`, which writes records to tables of a database."""
