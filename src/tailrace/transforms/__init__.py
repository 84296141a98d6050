"""Transforms: operations on the rows of a source, between it and the sink.

`unwrap` is Debezium's ExtractNewDocumentState, which sources apply when their options say so; `frames` has it for
DataFrames. Worker, and the driver that names them.
"""
