"""The commands of `tailrace`, one module for each that is more than a few lines. Driver."""
