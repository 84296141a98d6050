"""tailrace's own connectors under the contract."""

from __future__ import annotations

from tailrace.connectors import registry
from tests.contract.conftest import SUBJECTS
from tests.contract.promises import *  # noqa: F403


def test_every_connector_is_here() -> None:
    assert set(SUBJECTS) == set(registry.OWN)
