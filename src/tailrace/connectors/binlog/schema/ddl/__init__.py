"""DDL of MySQL and MariaDB: statements as values, and what they make of definitions. No I/O.

Own, since libraries that parse SQL lose how a type is spelled, which events and records of schema changes show, and
pass over what they do not know.
"""
