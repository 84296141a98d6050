INSERT INTO debezium_signal VALUES ('signal-1', 'execute-snapshot', '{"data-collections": ["public.nopk"], "type": "incremental", "surrogate-key": "a"}');
--@ settle 2
INSERT INTO debezium_signal VALUES ('signal-2', 'execute-snapshot', '{"data-collections": ["public.nopk"], "type": "incremental", "surrogate-key": "b"}');
--@ settle 2
INSERT INTO debezium_signal VALUES ('signal-3', 'execute-snapshot', '{"data-collections": ["public.t"], "type": "incremental", "surrogate-key": "other"}');
--@ settle 2
INSERT INTO debezium_signal VALUES ('signal-4', 'execute-snapshot', '{"data-collections": ["public.uniq"], "type": "incremental"}');
INSERT INTO nopk VALUES (50, NULL, 'z');
--@ settle 2
INSERT INTO fin VALUES (1);
