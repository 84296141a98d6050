"""The texts of the program use the words of the glossary. `pytest -s` prints all of them, to be read."""

from __future__ import annotations

import re

import pytest

from tools.house.messages import KINDS, Text, main, texts

OLDER = {
    "put aside": "quarantined",
    "mend": "remedy, or repair",
    "log-in": "login",
    "is no member": "is not a member",
    "cut off": "cancelled",
    "vouches": "has signed",
}
"""Words that stood for a word of the glossary, or that a native writer would not use, and what to write."""


@pytest.fixture(scope="module")
def every() -> tuple[Text, ...]:
    return texts()


def test_the_list_has_texts_of_each_kind(every: tuple[Text, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert {text.kind for text in every} == set(KINDS)
    shown = {text.text for text in every}
    assert "The replication slot {…} is gone." in shown
    assert "run the pipeline that a file describes" in shown
    assert "Send a tombstone after each delete." in shown
    main([])
    printed = capsys.readouterr().out
    assert printed.count("\n") > len(every)
    print(printed)


@pytest.mark.parametrize("word", OLDER)
def test_one_word_stands_for_one_thing(word: str, every: tuple[Text, ...]) -> None:
    found = [f"{text.path}:{text.line}" for text in every if re.search(rf"\b{word}\b", text.text)]
    assert found == [], f"write {OLDER[word]}"
