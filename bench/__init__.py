"""The benchmark: what tailrace needs for a backlog, a snapshot and a single row, beside PostgreSQL's own tools.

`python -m bench` from the root of the repository. docs/performance.md says what each figure means.
"""
