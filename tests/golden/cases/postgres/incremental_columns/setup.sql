CREATE TABLE debezium_signal (id VARCHAR(42) PRIMARY KEY, type VARCHAR(32) NOT NULL, data VARCHAR(2048) NULL);
CREATE TABLE fin (id INT PRIMARY KEY);

CREATE TABLE t (id INT, k TEXT, secret TEXT, masked TEXT, cut TEXT, hashed TEXT, v NUMERIC(8,2) NOT NULL DEFAULT 1.5, doc JSONB, arr INT[], by BYTEA, PRIMARY KEY (id, k));
INSERT INTO t SELECT i, 'k' || i, 's', 'mask' || i, 'a long text ' || i, 'hash' || i, i * 1.25, '{"a": 1}', ARRAY[i, i + 1], '\x0102' FROM generate_series(1, 7) i;
