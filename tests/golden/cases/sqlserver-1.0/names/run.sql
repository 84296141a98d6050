INSERT INTO Sales.[Order Lines] VALUES (2, N'b', 2, 2, 2);
UPDATE Sales.[Order Lines] SET [select] = 5 WHERE [Order Id] = 1;
INSERT INTO UPPER VALUES (1, 2);
DELETE FROM UPPER;
