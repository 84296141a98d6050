CREATE TABLE "_t" ("9" INT PRIMARY KEY, "a_" TEXT, "__" TEXT, "A1b2" TEXT);
INSERT INTO "_t" VALUES (1, 'x', 'y', 'z');
