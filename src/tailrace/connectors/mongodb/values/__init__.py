"""Values of BSON: finding them in bytes, leaving fields out, writing them as JSON."""
