CREATE TYPE em AS ENUM ('x', 'y');
CREATE TABLE m (k TEXT PRIMARY KEY, t TEXT NOT NULL DEFAULT 'dflt', n INT, d DATE, b BIGINT NOT NULL, j JSONB, u UUID, a TEXT[], bo BOOLEAN, c CHAR(3), e em, by BYTEA, plain TEXT);
INSERT INTO m VALUES ('k1', DEFAULT, 1, '2020-01-01', 2, '{}', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '{a}', true, 'abc', 'x', '\x01', 'p');
