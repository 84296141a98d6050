"""A database that is a file: each line of it is a change of a row, as JSON, and the number of the line its position.

{"op": "c", "table": "orders", "before": null, "after": {"id": 1, "item": "rope"}, "at_us": 1700000000000000}
"""
