CREATE TABLE debezium_signal (id VARCHAR(42) PRIMARY KEY, type VARCHAR(32) NOT NULL, data VARCHAR(2048) NULL);
CREATE TABLE fin (id INT PRIMARY KEY);

CREATE TABLE nopk (a INT NOT NULL, b TEXT, v TEXT);
CREATE UNIQUE INDEX nopk_b ON nopk (b);
INSERT INTO nopk SELECT i, chr(107 - i), 'v' || i FROM generate_series(1, 7) i;
CREATE TABLE dup (a INT, v TEXT);
INSERT INTO dup SELECT i / 3, 'v' || i FROM generate_series(1, 9) i;
CREATE TABLE t (id INT PRIMARY KEY, other INT NOT NULL UNIQUE, v TEXT);
INSERT INTO t SELECT i, 100 - i, 'v' || i FROM generate_series(1, 9) i;
CREATE TABLE uniq (a INT NOT NULL, b INT NOT NULL, v TEXT);
CREATE UNIQUE INDEX uniq_ab ON uniq (a, b);
INSERT INTO uniq SELECT i % 3, i, 'v' || i FROM generate_series(1, 9) i;
