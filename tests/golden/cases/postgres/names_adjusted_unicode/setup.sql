CREATE SCHEMA "s.p";
CREATE TABLE "s.p"."1t q" ("a.b" INT PRIMARY KEY, "1c d" TEXT, "ü_x" TEXT, "Dollar$" INT, "😀" INT, _u INT);
INSERT INTO "s.p"."1t q" VALUES (1, 'x', 'y', 1, 2, 3);
