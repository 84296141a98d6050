"""The oplog or a change stream: positions, reading it into a spool, what of it is captured and can be relied on."""
