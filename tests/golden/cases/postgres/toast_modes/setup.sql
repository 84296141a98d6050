CREATE EXTENSION hstore;
CREATE TABLE big (id INT PRIMARY KEY, n INT, da DATE[], ti TIME[], ts TIMESTAMP[], nu NUMERIC[], h HSTORE, p PATH, pl POLYGON, nn TEXT NOT NULL);
INSERT INTO big VALUES (1, 1, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'x');
DO $$ DECLARE c TEXT; BEGIN FOR c IN SELECT attname FROM pg_attribute WHERE attrelid = 'big'::regclass AND attnum > 2 LOOP EXECUTE format('ALTER TABLE big ALTER %I SET STORAGE EXTERNAL', c); END LOOP; END $$;
UPDATE big SET da = array_fill('2020-01-01'::date, ARRAY[900]), ti = array_fill('10:00'::time, ARRAY[900]), ts = array_fill('2020-01-01'::timestamp, ARRAY[900]), nu = array_fill(1.5, ARRAY[900]), h = hstore('k', repeat('v', 3000)),
  p = ('[' || repeat('(0,0),', 300) || '(1,1)]')::path, pl = ('(' || repeat('(0,0),', 300) || '(1,1))')::polygon, nn = repeat('x', 3000);
