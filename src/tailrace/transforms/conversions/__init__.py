"""Transforms of values into other forms: times, zones, geometries, vectors."""
