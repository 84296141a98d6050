INSERT INTO r SELECT 2, a, b, c, d, e, f, m, tm, ar FROM r;
UPDATE r SET a = 'empty', b = 'empty', c = '(,)' WHERE id = 1;
DELETE FROM r WHERE id = 2;
