insert into "s_1 é"."ü-x.y😀" values (1, 1);
