CREATE EXTENSION hstore; CREATE EXTENSION citext; CREATE EXTENSION ltree;
CREATE TYPE em AS ENUM ('x');
CREATE TABLE big (id INT PRIMARY KEY, n INT, ti TIME[], tt TIMETZ[], ts TIMESTAMP[], t3 TIMESTAMP(3)[], tz TIMESTAMPTZ[], bo BOOLEAN[], f4 REAL[], i2 SMALLINT[], oi OID[], ip INET[], nu NUMERIC[], n2 NUMERIC(5,2)[], hs HSTORE[], e em[], ci CITEXT[], r INT4RANGE[], ch CHAR(3)[], m MACADDR[], lt LTREE[], mo XML);
INSERT INTO big VALUES (1, 1, array_fill('10:00'::time, ARRAY[900]), array_fill('10:00+00'::timetz, ARRAY[900]), array_fill('2020-01-01'::timestamp, ARRAY[900]), array_fill('2020-01-01'::timestamp, ARRAY[900]), array_fill('2020-01-01 00:00:00+00'::timestamptz, ARRAY[900]), array_fill(true, ARRAY[9000]), array_fill(1.5::real, ARRAY[2000]),
  array_fill(1::smallint, ARRAY[5000]), array_fill(1::oid, ARRAY[3000]), array_fill('10.0.0.1'::inet, ARRAY[900]), array_fill(1.5, ARRAY[900]), array_fill(1.5::numeric(5,2), ARRAY[900]), array_fill('a=>1'::hstore, ARRAY[500]), array_fill('x'::em, ARRAY[3000]), array_fill('x'::citext, ARRAY[2000]), array_fill('[1,2)'::int4range, ARRAY[900]), array_fill('abc'::char(3), ARRAY[1500]), array_fill('08:00:2b:01:02:03'::macaddr, ARRAY[1500]), array_fill('a'::ltree, ARRAY[900]), NULL);
ALTER TABLE big ALTER ti SET STORAGE EXTERNAL, ALTER tt SET STORAGE EXTERNAL, ALTER ts SET STORAGE EXTERNAL;
DO $$ DECLARE c TEXT; BEGIN FOR c IN SELECT attname FROM pg_attribute WHERE attrelid = 'big'::regclass AND attnum > 2 LOOP EXECUTE format('ALTER TABLE big ALTER %I SET STORAGE EXTERNAL', c); END LOOP; END $$;
INSERT INTO big SELECT 2, 2, ti, tt, ts, t3, tz, bo, f4, i2, oi, ip, nu, n2, hs, e, ci, r, ch, m, lt, mo FROM big;
DELETE FROM big WHERE id = 1;
