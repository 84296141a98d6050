CREATE TABLE debezium_signal (id VARCHAR(42) PRIMARY KEY, type VARCHAR(32) NOT NULL, data VARCHAR(2048) NULL);
CREATE TABLE fin (id INT PRIMARY KEY);

CREATE TABLE t (id INT PRIMARY KEY, v TEXT, n INT NOT NULL DEFAULT 0);
INSERT INTO t (id, v) SELECT i, 'v' || i FROM generate_series(1, 10) i;
CREATE TABLE c (a INT, b TEXT, v TEXT, PRIMARY KEY (b, a));
INSERT INTO c SELECT i, chr(97 + i % 3), 'c' || i FROM generate_series(1, 10) i;
CREATE TABLE e (id INT PRIMARY KEY);
