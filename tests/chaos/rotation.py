"""The mixes of the machine. A run of the tests takes one mix, in turn by day of the year; a full run takes all.

A mix is the victims, and the sink that is written to meanwhile.
"""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from _pytest.mark.structures import ParameterSet

MIXES = ("files-server", "kafka-server", "files-run", "mysql", "mariadb")
TODAY = MIXES[datetime.date.today().timetuple().tm_yday % len(MIXES)]


def mix(name: str, *values: object) -> ParameterSet:
    """Return the parameters of a test that is the mix `name`; on other days only a full run takes them."""
    assert name in MIXES
    return pytest.param(*values, id=name, marks=() if name == TODAY else pytest.mark.full)
