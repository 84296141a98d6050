UPDATE "1t q" SET "a.b" = 3;
