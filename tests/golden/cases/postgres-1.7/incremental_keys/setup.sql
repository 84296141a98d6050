CREATE TABLE debezium_signal (id VARCHAR(42) PRIMARY KEY, type VARCHAR(32) NOT NULL, data VARCHAR(2048) NULL);
CREATE TABLE fin (id INT PRIMARY KEY);

CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy', 'Above');
CREATE TABLE k_text_uuid (t TEXT, u UUID, v INT, PRIMARY KEY (t, u));
INSERT INTO k_text_uuid SELECT (ARRAY['ä', 'Z', 'a''b', 'a"b', 'a\b', '', 'b%', 'a,b'])[1 + i % 8], ('00000000-0000-0000-0000-0000000000' || lpad(to_hex(i), 2, '0'))::uuid, i FROM generate_series(1, 16) i;
CREATE TABLE k_times (z TIMESTAMPTZ, d DATE, ts TIMESTAMP(3), v INT, PRIMARY KEY (z, d, ts));
INSERT INTO k_times SELECT '2024-03-31 00:30:00+00'::timestamptz + i * interval '17 minutes 0.123456 seconds', '2024-01-01'::date + i, '2024-01-01 00:00:00.123'::timestamp - i * interval '1 day', i FROM generate_series(1, 10) i;
CREATE TABLE k_numeric (n NUMERIC(10,3), f DOUBLE PRECISION, big BIGINT, v INT, PRIMARY KEY (n, f, big));
INSERT INTO k_numeric SELECT (i - 5) * 1.125, i / 3.0, -9223372036854775808 + i, i FROM generate_series(1, 10) i;
CREATE TABLE k_enum (m mood, b BOOLEAN, s SMALLINT, v INT, PRIMARY KEY (m, b, s));
INSERT INTO k_enum SELECT (enum_range(NULL::mood))[1 + i % 4], i % 2 = 0, i, i FROM generate_series(1, 10) i;
CREATE TABLE k_varchar (c CHAR(5), vc VARCHAR(10), v INT, PRIMARY KEY (c, vc));
INSERT INTO k_varchar SELECT 'c' || i % 3, 'v' || i, i FROM generate_series(1, 10) i;
