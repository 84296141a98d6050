"""What the server needs before its log can be read: publication, slot, replica identities, and whether it has them."""
