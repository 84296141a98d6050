"""Values of BSON: locating them in bytes, filtering fields, and writing JSON."""
