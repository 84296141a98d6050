INSERT INTO sig."Signals" VALUES ('signal-1', 'execute-snapshot', '{"data-collections": ["public.t"], "type": "incremental"}');
--@ settle 2
INSERT INTO sig."Signals" VALUES ('signal-2', 'log', '{"message": "x"}');
--@ settle 2
INSERT INTO sig."Signals" VALUES ('signal-3', 'execute-snapshot', '{"data-collections": ["public.c"], "type": "incremental"}');
--@ settle 2
INSERT INTO fin VALUES (1);
