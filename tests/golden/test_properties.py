"""Configurations are read as Java reads property files."""

import pytest

from tests.golden.properties import parse


@pytest.mark.parametrize(
    ("text", "properties"),
    [
        ("a=1\n# b=2\n! c=3\n\n d = 4 ", {"a": "1", "d": "4 "}),
        (r"list=public\\.t,.*\\.note", {"list": r"public\.t,.*\.note"}),
        ("list=a,\\\n   b,\\\n# c", {"list": "a,b,# c"}),
        (r"tab=\tx\u00e9", {"tab": "\txé"}),
        ("a:1\nb 2\nc", {"a": "1", "b": "2", "c": ""}),
        (r"a\=b=c=d", {"a=b": "c=d"}),
        ("path=C:\\\\\nnext=1", {"path": "C:\\", "next": "1"}),
    ],
)
def test_property_files(text: str, properties: dict[str, str]) -> None:
    assert parse(text) == properties
