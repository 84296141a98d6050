UPDATE lines SET qty = qty;
UPDATE lines SET qty = NULL;
DELETE FROM lines;
