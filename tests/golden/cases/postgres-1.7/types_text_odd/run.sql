INSERT INTO t VALUES (2, '<?xml version="1.0"?><a b="1">é</a>', '  [1,2]  ', '  [1,2.0,1e2]  ', 'A', 'x', 'y', '{A0EEBC999C0B4EF8BB6D6BB9BD380A12}', 'a.b', 'n', 'fat:2 cat:1A');
INSERT INTO t (id) VALUES (3);
INSERT INTO t (id, x, v, ci) VALUES (4, E'<a>\n\t<b/>\n</a>', E'\u007f\u0080\u2028', U&'\+01F600\FFFF');
DELETE FROM t WHERE id = 1;
