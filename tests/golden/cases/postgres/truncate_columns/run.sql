INSERT INTO m VALUES ('key2', '', 'abcd', '日本語', NULL, NULL, NULL, NULL);
UPDATE m SET t = 'xy' WHERE k = 'key1';
