CREATE TABLE a_text (id INT PRIMARY KEY, t TEXT[], j JSON[], b BYTEA[], u UUID[], lower_bound INT[]);
INSERT INTO a_text VALUES (1, ARRAY['comma, brace} {', E'back\\slash "q"', '', NULL, 'NULL', ' space ', E'nl\n', 'é😀'], ARRAY['{"a": [1, {"b": "x\"y"}]}', 'null']::json[], ARRAY['\x'::bytea, '\xdeadbeef'], '{A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11,NULL}', '[3:4]={7,8}');
