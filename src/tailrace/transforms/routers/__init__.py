"""Transforms that choose topics, partitions and records."""
