"""Prerequisites of reading the log: publication, slot and replica identities, made or checked. Planner and driver."""
