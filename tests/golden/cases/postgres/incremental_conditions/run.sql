INSERT INTO debezium_signal VALUES ('signal-1', 'execute-snapshot', '{"data-collections": ["public.t", "public.c"], "type": "incremental", "additional-conditions": [{"data-collection": "public.t", "filter": "id > 3 and id < 9"}]}');
--@ settle 2
INSERT INTO debezium_signal VALUES ('signal-2', 'execute-snapshot', '{"data-collections": ["public.t", "public.c"], "type": "incremental", "additional-conditions": [{"data-collection": "public.t", "filter": "id % 2 = 0 or v = ''v3''"}, {"data-collection": "public.c", "filter": "b in (''a'', ''b'')"}]}');
--@ settle 2
INSERT INTO debezium_signal VALUES ('signal-3', 'execute-snapshot', '{"data-collections": ["public.t"], "type": "incremental", "additional-conditions": [{"data-collection": "public.c", "filter": "a = 1"}]}');
--@ settle 2
INSERT INTO debezium_signal VALUES ('signal-4', 'execute-snapshot', '{"data-collections": ["public.t"], "type": "incremental", "additional-conditions": [{"data-collection": "public.t", "filter": "false"}]}');
--@ settle 2
INSERT INTO fin VALUES (1);
