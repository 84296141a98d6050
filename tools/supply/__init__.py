"""What the product is made of: the bill of materials, and the audit of it."""
