CREATE SCHEMA myschema;
CREATE TABLE myschema.debezium_signal (id VARCHAR(42) PRIMARY KEY, type VARCHAR(32) NOT NULL, data VARCHAR(2048) NULL);
CREATE SCHEMA schema1;
CREATE SCHEMA schema2;
CREATE TABLE schema1.table1 (id SERIAL PRIMARY KEY, v TEXT);
CREATE TABLE schema2.table2 (id UUID PRIMARY KEY, v TEXT);
INSERT INTO schema1.table1 (v) SELECT 'v' || i FROM generate_series(1, 30) i;
INSERT INTO schema2.table2 SELECT ('00000000-0000-0000-0000-0000000000' || lpad(to_hex(i), 2, '0'))::uuid, 'v' || i FROM generate_series(1, 5) i;
CREATE TABLE fin (id INT PRIMARY KEY);
