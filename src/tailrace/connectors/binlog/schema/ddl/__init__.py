"""DDL of MySQL and MariaDB: the parser of statements, and their effect on definitions. No I/O.

Libraries that parse SQL are not used: they lose the spelling of types, which events and records of schema changes show,
and skip what they do not know.
"""
