"""A database in a file: each line is a change of a row, as JSON, and the line's number is its position.

Keys are numbers from 1 on. The file has every earlier state of a table, so that a snapshot can be taken at any line.

{"op": "c", "table": "orders", "before": null, "after": {"id": 1, "item": "rope"}, "at_us": 1700000000000000}
"""
