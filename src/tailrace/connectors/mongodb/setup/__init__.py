"""What the server needs before its changes can be captured, and whether it has it."""
