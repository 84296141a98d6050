CREATE TABLE debezium_signal (id VARCHAR(42) PRIMARY KEY, type VARCHAR(32) NOT NULL, data VARCHAR(2048) NULL);
CREATE TABLE fin (id INT PRIMARY KEY);

CREATE TABLE t (id INT PRIMARY KEY, a INT, b TEXT, v TEXT);
INSERT INTO t SELECT i, i % 3, 'b' || i, 'v' || i FROM generate_series(1, 8) i;
CREATE TABLE nopk (a INT, b TEXT, v TEXT);
INSERT INTO nopk SELECT i, 'b' || i, 'v' || i FROM generate_series(1, 5) i;
