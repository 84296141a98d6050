"""What the server needs before changes can be captured, and whether it has it."""
