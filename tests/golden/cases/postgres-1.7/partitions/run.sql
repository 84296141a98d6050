INSERT INTO p VALUES (3, 3, 'low'), (4, 14, 'high');
UPDATE p SET v = 'changed' WHERE id = 1;
UPDATE p SET k = 15 WHERE id = 3;
DELETE FROM p WHERE id = 2;
CREATE TABLE p_more PARTITION OF p FOR VALUES FROM (20) TO (30);
INSERT INTO p VALUES (5, 25, 'more');
