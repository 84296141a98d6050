"""Conditions in Groovy, JavaScript and SQL: their syntax, and what they mean for a record."""
