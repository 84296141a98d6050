INSERT INTO bytes (id, b, vb, vm, i) VALUES (1, 0x01ff, 0x00ff7f, 0xdeadbeef, 0x0a);
INSERT INTO bytes (id) VALUES (2);
