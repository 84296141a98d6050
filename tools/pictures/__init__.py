"""The pictures of the documentation: SVG made from the TOML beside each, by `python -m tools.pictures`."""
