"""Transforms: operations on records between the source and the sink. Driver, worker.

A source applies the transforms in its options by itself. `document_state` takes a DataFrame; the connector computes its
result, see `Documents` in `tailrace.connectors.descriptor`.
"""
