"""Transforms of the fields of keys and values."""
