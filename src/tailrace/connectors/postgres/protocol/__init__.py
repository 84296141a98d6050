"""The log's messages: positions, parsing, scanning, decoding into columns. Planner and worker."""
