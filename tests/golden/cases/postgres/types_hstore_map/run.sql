INSERT INTO h VALUES (2, '"q\"uote"=>"x, => y"', 'n=>NULL', NULL), (3, '', '', NULL), (4, 'é=>"ü😀"', '" "=>" "', NULL);
UPDATE h SET h = NULL WHERE id = 1;
DELETE FROM h WHERE id = 2;
