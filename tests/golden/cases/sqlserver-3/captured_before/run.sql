INSERT INTO orders VALUES (2, N'b');
INSERT INTO nullablekey VALUES (3, 4);
