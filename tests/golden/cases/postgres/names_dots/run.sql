INSERT INTO "s.p"."t.q" VALUES (2, 'x', 'y', 1, 2);
UPDATE "s.p"."t.q" SET "a.b" = 3 WHERE "a.b" = 2;
INSERT INTO "таблица" VALUES (2, 'ю');
INSERT INTO "UPPER-case_1" VALUES (1, 2);
UPDATE "UPPER-case_1" SET "ID" = 3;
