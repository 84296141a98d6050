"""Transforms: operations on the rows of a source, between it and the sink, for DataFrames. Driver and worker.

What is computed is the connector's own: see `Documents` in `tailrace.connectors.descriptor`. A source applies it by
itself where its options say so.
"""
