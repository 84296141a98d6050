"""The parts of the product: the bill of materials, and its audit."""
