CREATE TABLE m (k TEXT PRIMARY KEY, t TEXT, c CHAR(4), vc VARCHAR(10) NOT NULL DEFAULT 'default', j JSON, e XML, ar TEXT[], n INT);
INSERT INTO m VALUES ('key1', 'ééé', 'ab', DEFAULT, '{"a": 1}', '<a/>', '{abcd}', 12345);
