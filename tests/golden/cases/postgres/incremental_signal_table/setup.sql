CREATE SCHEMA sig;
CREATE TABLE sig."Signals" ("Code" VARCHAR(100) PRIMARY KEY, kind TEXT NOT NULL, body TEXT);
CREATE TABLE fin (id INT PRIMARY KEY);

CREATE TABLE t (id INT PRIMARY KEY, v TEXT, n INT NOT NULL DEFAULT 0);
INSERT INTO t (id, v) SELECT i, 'v' || i FROM generate_series(1, 10) i;
CREATE TABLE c (a INT, b TEXT, v TEXT, PRIMARY KEY (b, a));
INSERT INTO c SELECT i, chr(97 + i % 3), 'c' || i FROM generate_series(1, 10) i;
