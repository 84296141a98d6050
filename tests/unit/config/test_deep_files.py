"""A connector's JSON that is nested without end is reported as a wrong file."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.connectors.registry import read
from tailrace.errors import ConfigError


def test_a_connector_nested_without_end_is_no_json(tmp_path: Path) -> None:
    path = tmp_path / "connector.json"
    path.write_text('{"config":' + "[" * 50_000)
    with pytest.raises(ConfigError, match="is not JSON"):
        read(path)
