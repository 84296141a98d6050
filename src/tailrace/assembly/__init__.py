"""Records as bytes: put together out of pieces by a compiled program, and JSON's texts."""
