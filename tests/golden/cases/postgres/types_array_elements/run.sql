INSERT INTO a_one VALUES (2, '{A,b}', ARRAY['a=>1,b=>NULL', '']::hstore[], '{a.b,c}', '{08:00:2b:01:02:03:04:05}', ARRAY['<a/>']::xml[], '{n1,n2}', '{x}', '{Sad,"happy, \"really\"",NULL}', '{978-0-393-04002-9}', '{a,"b "}', '{101,1}', '{1,0}', '{1,2}', NULL, ARRAY['a b'::tsvector]);
INSERT INTO a_two VALUES (2, '{"[1,5)",empty}', '{"(1.5,2]"}', '{"[2020-01-01 00:00:00,2020-01-02 00:00:00)"}', '{"[2020-01-01 00:00:00+02,)"}', '{"[2020-01-01,2020-01-05]"}', '{10:11:12.345,NULL}', '{10:11:12+03}', '{2020-01-01 00:00:00.000001,NULL}', '{2020-01-01 00:00:00+02}', '{1.5,NULL,-0.0001}', '{1.50,1e20}', '{1,NaN,Infinity,1e-7}');
INSERT INTO a_one (id, a_mood) VALUES (3, '{}');
UPDATE a_two SET a_nn = '{}', a_f8 = '{0.1,-0,100,12345678.9}' WHERE id = 1;
DELETE FROM a_two WHERE id = 2;
