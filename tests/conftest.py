"""Fixtures of all tests come from plugin modules, one for each server."""

pytest_plugins = [
    "tests.fix_postgres",
    "tests.fix_capture",
    "tests.fix_query",
    "tests.fix_spark",
    "tests.fix_kafka",
    "tests.fix_mongodb",
    "tests.fix_db2",
    "tests.fix_sqlserver",
]
