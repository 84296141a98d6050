UPDATE a SET v = 'w' WHERE id = 1;
