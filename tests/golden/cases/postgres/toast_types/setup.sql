CREATE EXTENSION hstore;
CREATE TABLE big (id INT PRIMARY KEY, n INT, x XML, j JSON, h HSTORE, num NUMERIC, va VARCHAR[], ba BYTEA[], ua UUID[], la BIGINT[], fa FLOAT8[], da DATE[], c CHAR(9000), vb VARBIT, ja JSONB[]);
ALTER TABLE big ALTER x SET STORAGE EXTERNAL, ALTER j SET STORAGE EXTERNAL, ALTER h SET STORAGE EXTERNAL, ALTER va SET STORAGE EXTERNAL, ALTER ua SET STORAGE EXTERNAL, ALTER la SET STORAGE EXTERNAL,
  ALTER fa SET STORAGE EXTERNAL, ALTER da SET STORAGE EXTERNAL, ALTER c SET STORAGE EXTERNAL, ALTER vb SET STORAGE EXTERNAL, ALTER ja SET STORAGE EXTERNAL, ALTER ba SET STORAGE EXTERNAL;
INSERT INTO big VALUES (1, 1, ('<a>' || repeat('x', 3000) || '</a>')::xml, to_json(repeat('j', 3000)), hstore('k', repeat('h', 3000)), NULL, array_fill('v'::varchar, ARRAY[900]), array_fill('\xab'::bytea, ARRAY[700]),
  array_fill('a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::uuid, ARRAY[200]), array_fill(7::bigint, ARRAY[400]), array_fill(1.5::float8, ARRAY[400]), array_fill('2020-01-01'::date, ARRAY[800]), 'c', repeat('1', 24000)::varbit, array_fill('{}'::jsonb, ARRAY[400]));
