"""A column's declaration is packed into one number and unpacked again."""

from __future__ import annotations

import pytest

from tailrace.connectors.sqlserver.values.declaration import modifier, precision_and_scale


@pytest.mark.parametrize(
    ("type_name", "of_the_catalog", "declared"),
    [
        ("decimal", (17, 38, 10), 38 << 16 | 10),
        ("numeric", (5, 5, 0), 5 << 16),
        ("time", (5, 16, 7), 7),
        ("datetime2", (6, 19, 0), 0),
        ("datetimeoffset", (8, 29, 2), 2),
        ("nvarchar", (100, 0, 0), 50),
        ("nvarchar", (-1, 0, 0), -1),
        ("varchar", (100, 0, 0), 100),
        ("varbinary", (-1, 0, 0), -1),
        ("binary", (16, 0, 0), 16),
        ("float", (8, 53, 0), 53),
        ("money", (8, 19, 4), -1),
        ("int", (4, 10, 0), -1),
        ("datetime", (8, 23, 3), -1),
    ],
)
def test_a_modifier_is_made_of_the_catalogs_numbers(
    type_name: str, of_the_catalog: tuple[int, int, int], declared: int
) -> None:
    assert modifier(type_name, *of_the_catalog) == declared


def test_precision_and_scale_come_back() -> None:
    for precision in range(1, 39):
        for scale in range(precision + 1):
            assert precision_and_scale(modifier("decimal", 0, precision, scale)) == (precision, scale)
