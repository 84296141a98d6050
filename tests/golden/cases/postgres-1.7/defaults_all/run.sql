INSERT INTO d (id, a, r, n, t, v, bo) VALUES (2, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO d2 (dt, dn, ti, t3, tz, tn, i, u, j, e, b, a, tt) VALUES (NULL, '2020-01-01', NULL, NULL, NULL, '2020-01-01 00:00:00+00', NULL, 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', NULL, NULL, NULL, NULL, NULL);
UPDATE d SET b = 1 WHERE id = 1;
DELETE FROM d2 WHERE id = 5;
