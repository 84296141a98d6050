"""A remedy names the command that works for the way in which the package was installed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tailrace.process.installation import pip_install

METADATA = """\
Metadata-Version: 2.4
Name: brittle
Version: 1.0
Requires-Dist: numpy>=2
Requires-Dist: confluent-kafka>=2.6; extra == "kafka"
Requires-Dist: pandas>=2; extra == "state"
"""


def installed(folder: Path, monkeypatch: pytest.MonkeyPatch, record: object) -> None:
    """Let a package `brittle` be installed with pip's `record` of where it came from; None for no record."""
    place = folder / "brittle-1.0.dist-info"
    place.mkdir()
    (place / "METADATA").write_text(METADATA)
    if record is not None:
        (place / "direct_url.json").write_text(json.dumps(record))
    monkeypatch.syspath_prepend(str(folder))


@pytest.mark.parametrize(("info", "flag"), [({"editable": True}, "-e "), ({}, "")])
def test_a_directory_is_installed_again_with_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, info: dict[str, bool], flag: str
) -> None:
    checkout = tmp_path / "my copy"
    checkout.mkdir()
    installed(tmp_path, monkeypatch, {"dir_info": info, "url": checkout.as_uri()})
    assert pip_install("brittle[kafka]") == f"pip install {flag}'{checkout}[kafka]'"


def test_a_wheel_is_named_as_long_as_it_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = tmp_path / "brittle-1.0-py3-none-any.whl"
    wheel.touch()
    installed(tmp_path, monkeypatch, {"archive_info": {}, "url": wheel.as_uri()})
    assert pip_install("brittle[kafka]") == f"pip install '{wheel}[kafka]'"
    wheel.unlink()
    assert pip_install("brittle[kafka]") == "pip install 'confluent-kafka>=2.6'"


@pytest.mark.parametrize(
    ("record", "wanted"),
    [
        (None, "brittle[kafka]"),
        (
            {"vcs_info": {"vcs": "git", "commit_id": "abc"}, "url": "https://host/brittle.git"},
            "brittle[kafka] @ git+https://host/brittle.git@abc",
        ),
        ({"archive_info": {}, "url": "https://host/brittle.whl"}, "brittle[kafka] @ https://host/brittle.whl"),
    ],
    ids=["an index", "a repository", "an address"],
)
def test_what_came_from_elsewhere_comes_from_there_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record: object, wanted: str
) -> None:
    installed(tmp_path, monkeypatch, record)
    assert pip_install("brittle[kafka]") == f"pip install '{wanted}'"


def test_what_pip_has_not_installed_is_named_as_it_is() -> None:
    assert pip_install("no-such-package[kafka]") == "pip install 'no-such-package[kafka]'"
    assert pip_install("no-such-package") == "pip install no-such-package"
