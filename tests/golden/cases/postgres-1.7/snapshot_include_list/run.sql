UPDATE a SET v = 'w';
UPDATE c SET v = 'w';
