"""Only misread names are corrected, and only their tables are left out."""

from tests.golden import wire
from tests.golden.compare import difference
from tests.golden.misread import put_right
from tests.golden.record import Record


def change(topic: str, table: str, column: str, op: str = "c", value: str = '"v"') -> Record:
    text = f'{{"after":{{"{column}":{value}}},"source":{{"table":"{table}"}},"op":"{op}"}}'
    return Record(topic, wire.NULL, wire.Reader().read(text), [])


def test_signed_bytes_are_read_again() -> None:
    assert put_right("na\uffc3\uffafve") == "naïve"
    assert put_right("\ufff0\uff9f\uff98\uff80") == r"\uD83D\uDE00"
    assert put_right("naïve \uff83\uff7d\uff84") == "naïve \uff83\uff7d\uff84"


def test_a_misread_column_is_compared_by_its_right_name() -> None:
    assert difference([change("t", "t", "na\uffc3\uffafve")], [change("t", "t", "naïve")]) is None
    assert difference([change("t", "t", "na\uffc3\uffafve")], [change("t", "t", "naive")]) is not None
    assert difference([change("t", "t", "naïve")], [change("t", "t", "na\uffc3\uffafve")]) is not None


def test_of_a_misread_table_the_snapshot_is_compared() -> None:
    recorded = [change("a_", "é", "c", "r"), change("a__", "\uffc3\uffa9", "c"), change("b", "b", "c")]
    ours = [change("a_", "é", "c", "r"), change("a_", "é", "c"), change("b", "b", "c")]
    assert difference(recorded, ours) is None
    assert difference(recorded, ours[1:]) is not None
    assert difference(recorded, [*ours[:2], change("b", "b", "c", value="null")]) is not None
