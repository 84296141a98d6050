"""A running snapshot shows the progress of its tables: as bars on a terminal, as lines elsewhere."""

from __future__ import annotations

import io
from typing import Any

import pytest

from tailrace.connectors.postgres.status import describe
from tailrace.connectors.source_status import TableProgress, tables
from tailrace.monitoring.status import Pace, StatusLine, bar, described
from tailrace.snapshot.incremental import Collection, Cursor, IncrementalSnapshot

CHUNKS = [("public.t", 3), ("public.u", 1), ("s.v", 1)]


def test_the_planners_own_figures_come_first() -> None:
    entry = {"table": "public.t", "rows": 1200, "of": 5000, "waiting": ["public.w", "s.x"], "paused": True}
    told = TableProgress("public.t", 1200, 5000, "rows", ("public.w", "s.x"), True)
    assert tables({}, {"snapshot": entry}, CHUNKS, 1) == (told,)
    two = [entry, {"table": "public.u", "rows": 0}]
    assert tables({}, {"snapshot": two}, CHUNKS, 1) == (told, TableProgress("public.u", 0, None))


@pytest.mark.parametrize("odd", [None, 7, "text", {}, {"table": "t"}, {"rows": 1}, [None], {"table": 1, "rows": 1}])
def test_what_is_no_figure_is_passed_over(odd: Any) -> None:
    assert tables({}, {"snapshot": odd}) == ()
    assert tables({"snapshot": odd, "progress": odd}, {}) == ()


@pytest.mark.parametrize(
    ("done", "table", "chunks"),
    [(0, "public.t", (0, 3)), (2, "public.t", (2, 3)), (3, "public.u", (0, 1)), (4, "s.v", (0, 1))],
)
def test_an_initial_snapshot_tells_its_chunks(done: int, table: str, chunks: tuple[int, int]) -> None:
    (found,) = tables({}, {"log": {}}, CHUNKS, done)
    assert (found.table, (found.done, found.of), found.unit) == (table, chunks, "chunks")
    assert found.waiting == tuple(name for name, _ in CHUNKS[[name for name, _ in CHUNKS].index(table) + 1 :])
    assert tables({}, {}, CHUNKS, 5) == ()


def test_an_incremental_snapshot_tells_its_rows() -> None:
    collections = Collection("public", "t", "id > 1"), Collection("public", "u")
    state = IncrementalSnapshot("1", collections, Cursor(("7",), ("9",), 700), paused=True)
    assert tables({"progress": {"state": state.to_json()}}, {}) == (
        TableProgress("public.t", 700, None, "rows", ("public.u",), True),
    )


def test_the_pace_is_that_since_a_table_was_first_seen() -> None:
    pace = Pace()
    assert pace.seen([TableProgress("t", 100, None)], 10.0)[0][1] == 0
    assert pace.seen([TableProgress("t", 600, None)], 15.0)[0][1] == 100
    # The table is read anew from its start, so the earlier progress does not count.
    assert pace.seen([TableProgress("t", 50, None)], 20.0)[0][1] == 0
    assert pace.seen([TableProgress("u", 5, None)], 21.0)[0][1] == 0
    assert pace.seen([TableProgress("t", 60, None)], 22.0)[0][1] == 0


def test_figures_in_words() -> None:
    one = TableProgress("public.t", 1200, 5000, waiting=("public.u",))
    assert described(one, 600) == "public.t 1,200 of 5,000 rows · 600 rows/s · 6 s left · 1 more table"
    assert described(one, 1) == "public.t 1,200 of 5,000 rows · 1 rows/s · 63 min left · 1 more table"
    assert described(TableProgress("t", 7, None), 0) == "t 7 rows"
    assert described(TableProgress("t", 7, 9, "chunks", paused=True), 3) == "t 7 of 9 chunks · paused"
    assert described(TableProgress("t", 9, 7), 3) == "t 9 of 7 rows · 3 rows/s"
    assert described(TableProgress("t", 0, 100_000), 2).endswith("13.9 h left")


def test_a_bar_is_as_long_as_what_is_done() -> None:
    assert bar(TableProgress("t", 0, 10), 0).startswith(f"▕{' ' * 24}▏ t 0 of")
    assert bar(TableProgress("t", 5, 10), 0).startswith(f"▕{'█' * 12}{' ' * 12}▏")
    assert bar(TableProgress("t", 12, 10), 0).startswith(f"▕{'█' * 24}▏")
    assert bar(TableProgress("t", 0, 0), 0).startswith(f"▕{'█' * 24}▏")
    lengths = {bar(TableProgress("t", done, 999), 0).index("▏ t") for done in range(0, 999, 37)}
    assert lengths == {25}
    assert bar(TableProgress("t", 7, None), 0) == f"{' ' * 26} t 7 rows"


def record(rows: int | None, of: int = 1000) -> dict[str, Any]:
    told = {} if rows is None else {"snapshot": {"table": "public.t", "rows": rows, "of": of}}
    return {"batchId": 1, "sources": [{"endOffset": {}, "latestOffset": told}]}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def drawn(text: str) -> list[str]:
    """Return a terminal's contents after `text`, with carriage returns, line feeds, up, and both kinds of clearing."""
    rows, row, column, at = [""], 0, 0, 0
    while at < len(text):
        if text[at] == "\x1b":
            end = next(place for place in range(at + 2, len(text)) if text[place].isalpha())
            number, kind = int(text[at + 2 : end] or 1), text[end]
            if kind == "A":
                row -= number
            else:
                rows[row] = rows[row][:column]
                if kind == "J":
                    del rows[row + 1 :]
            at = end + 1
            continue
        if text[at] == "\r":
            column = 0
        elif text[at] == "\n":
            row, column = row + 1, 0
            if row == len(rows):
                rows.append("")
        else:
            rows[row] = rows[row][:column].ljust(column) + text[at] + rows[row][column + 1 :]
            column += 1
        at += 1
    return [line.rstrip() for line in rows]


def test_a_terminal_redraws_its_bars_in_place_and_clears_them_at_the_end() -> None:
    now = [0.0]
    out = Terminal()
    line = StatusLine(describe, out, lambda: now[0], lambda: 100)
    line.update(record(100))
    now[0] = 5.0
    line.update(record(600))
    line.update(None)
    shown = drawn(out.getvalue())
    assert len(shown) == 2
    assert shown[0].startswith("0 events/s")
    assert shown[1].endswith("▏ public.t 600 of 1,000 rows · 100 rows/s · 4 s left")
    line.update(record(None))
    assert len(drawn(out.getvalue())) == 1
    line.update(record(900))
    line.close()
    shown = drawn(out.getvalue())
    assert "900 of 1,000 rows" in shown[1]
    # Further output begins on a new line.
    assert shown[2:] == [""]


def test_no_line_is_wider_than_the_terminal() -> None:
    out = Terminal()
    line = StatusLine(describe, out, lambda: 0.0, lambda: 40)
    line.update(record(100))
    line.update(record(200))
    assert [len(one) <= 39 for one in drawn(out.getvalue())] == [True, True]


def test_without_a_terminal_each_table_has_a_line() -> None:
    out = io.StringIO()
    line = StatusLine(describe, out, lambda: 0.0)
    line.update(record(100))
    assert out.getvalue().splitlines() == [
        "0 events/s · 0 in all · batch 1",
        "  snapshot of public.t 100 of 1,000 rows",
    ]
    line.update(record(None))
    line.close()
    assert out.getvalue().splitlines()[2:] == ["0 events/s · 0 in all · batch 1"]
