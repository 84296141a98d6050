"""The verdict of a test on the outcome of a golden case."""

from __future__ import annotations

import pytest

from tests.golden import runner

KNOWN = runner.expected_failures()


def judge(outcome: runner.Outcome) -> None:
    """Pass if the case is equal, or skip or fail by the list of expected failures."""
    name = outcome.case.name
    if outcome.skipped:
        pytest.skip(outcome.skipped)
    if name in KNOWN:
        if outcome.difference is None:
            pytest.fail(f"{name} is equal: remove it from expected_failures.toml", pytrace=False)
        pytest.xfail(KNOWN[name])
    if outcome.difference is not None:
        pytest.fail(outcome.difference, pytrace=False)
