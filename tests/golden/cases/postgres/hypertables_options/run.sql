INSERT INTO "my chunks"."chunk 1" VALUES (2, 'b');
UPDATE "my chunks"."chunk 1" SET id = 3 WHERE id = 2;
DELETE FROM "my chunks"."chunk 1" WHERE id = 3;
TRUNCATE "my chunks"."chunk 1";
INSERT INTO _timescaledb_internal._hyper_2_2_chunk VALUES (2, 'b');
INSERT INTO public.third_chunk VALUES (2, 'b');
SELECT pg_logical_emit_message(true, 'p', 'hello');
--@ settle 3
