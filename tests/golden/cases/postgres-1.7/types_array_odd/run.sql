INSERT INTO a_text SELECT 2, t, j, b, u, NULL FROM a_text;
UPDATE a_text SET t = array_append(t, 'more') WHERE id = 2;
DELETE FROM a_text WHERE id = 2;
