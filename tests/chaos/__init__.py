"""Real kills: parts of a running pipeline are killed at random, and its output is compared with the source."""
