CREATE SCHEMA "s.p";
CREATE TABLE "s.p"."t.q" ("a.b" INT PRIMARY KEY, "c d" TEXT, "ü""x" TEXT, "Dollar$" INT, "%" INT);
CREATE TABLE "таблица" ("ключ" INT PRIMARY KEY, "значение" TEXT);
CREATE TABLE "UPPER-case_1" ("ID" INT, "Id2" INT, PRIMARY KEY ("Id2", "ID"));
INSERT INTO "s.p"."t.q" VALUES (1, 'x', 'y', 1, 2);
INSERT INTO "таблица" VALUES (1, 'я');
