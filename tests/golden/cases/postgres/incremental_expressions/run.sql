INSERT INTO debezium_signal VALUES ('signal-1', 'execute-snapshot', '{"data-collections": ["inventory\\.order.*"], "type": "incremental"}');
--@ settle 2
INSERT INTO debezium_signal VALUES ('signal-2', 'execute-snapshot', '{"data-collections": ["inventory\\.(customers|orders)", "public.Capital"], "type": "incremental"}');
--@ settle 2
INSERT INTO debezium_signal VALUES ('signal-3', 'execute-snapshot', '{"data-collections": ["INVENTORY.ORDERS"], "type": "incremental"}');
--@ settle 2
INSERT INTO debezium_signal VALUES ('signal-4', 'execute-snapshot', '{"data-collections": ["public.capital"], "type": "incremental"}');
--@ settle 2
INSERT INTO fin VALUES (1);
