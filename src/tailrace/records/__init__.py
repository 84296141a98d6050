"""Records between connectors and encodings: a layout, made once, and the columns that fill it for every block."""
