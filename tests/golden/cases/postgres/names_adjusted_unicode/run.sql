INSERT INTO "s.p"."1t q" VALUES (2, 'x', 'y', 1, 2, 3);
UPDATE "s.p"."1t q" SET "a.b" = 3 WHERE "a.b" = 2;
