UPDATE t SET id = 2;
