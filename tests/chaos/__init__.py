"""Real kills: the parts of a running pipeline are killed at random, and what it has delivered is compared."""
