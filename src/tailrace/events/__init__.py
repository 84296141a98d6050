"""Which records a change becomes, and their layouts: envelopes, keys, headers, tombstones, records beside changes."""
