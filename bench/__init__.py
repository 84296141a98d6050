"""The benchmark: time and memory of tailrace for a backlog, a snapshot and a single row, beside PostgreSQL's own tools.

`python -m bench` from the root of the repository. bench/README.md says what each figure means.
"""
