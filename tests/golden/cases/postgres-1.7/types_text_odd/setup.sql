CREATE EXTENSION citext; CREATE EXTENSION ltree;
CREATE TABLE t (id INT PRIMARY KEY, x XML, j JSON NOT NULL DEFAULT '{"a":  1}', jb JSONB NOT NULL DEFAULT '{"b": [1, 2]}', ci CITEXT NOT NULL DEFAULT 'Ci', c CHAR(5) NOT NULL DEFAULT 'ab', v VARCHAR(5) NOT NULL DEFAULT 'x', u UUID NOT NULL DEFAULT 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', lt LTREE, n NAME, tv TSVECTOR);
INSERT INTO t VALUES (1, '<?xml version="1.0"?><a b="1">é</a>', '  [1,2]  ', '  [1,2.0,1e2]  ', 'A', 'x', 'y', '{A0EEBC999C0B4EF8BB6D6BB9BD380A12}', 'a.b', 'n', 'fat:2 cat:1A');
