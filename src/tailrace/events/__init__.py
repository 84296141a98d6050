"""Expands changes into records and lays them out: envelopes, keys, headers, tombstones, other records."""
