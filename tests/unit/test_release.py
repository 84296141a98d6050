"""A release has one version everywhere, and its package names the repository that made it."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from tools.supply.release import NotReady, prepare

ROOT = Path(__file__).parents[2]
ADDRESS = "https://host.example/some/tailrace"


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """Return a copy of the files that a release reads, with version 1.2.3 and its date."""
    (tmp_path / "src" / "tailrace").mkdir(parents=True)
    (tmp_path / "src" / "tailrace" / "__init__.py").write_text('__version__ = "1.2.3"\n')
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## [1.2.3] - 2026-12-01\n\n## [1.2.2] - 2026-11-01\n")
    (tmp_path / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text("utf-8"), "utf-8")
    return tmp_path


def test_a_release_gets_the_addresses_of_its_repository(sources: Path) -> None:
    before = tomllib.loads((sources / "pyproject.toml").read_text("utf-8"))
    prepare("v1.2.3", ADDRESS, sources)
    after = tomllib.loads((sources / "pyproject.toml").read_text("utf-8"))
    urls = after["project"].pop("urls")
    assert after == before
    assert urls["Source"] == ADDRESS
    assert urls["Changelog"] == f"{ADDRESS}/blob/v1.2.3/CHANGELOG.md"
    with pytest.raises(NotReady, match="addresses already"):
        prepare("v1.2.3", ADDRESS, sources)


@pytest.mark.parametrize(
    ("tag", "address", "log", "words"),
    [
        ("v1.2.4", ADDRESS, "", "the tag is v1.2.4, the package's version 1.2.3"),
        ("v1.2.3", ADDRESS, "## [1.3.0] - 2026-12-01\n", "newest version is 1.3.0"),
        ("v1.2.3", ADDRESS, "## [1.2.3] - unreleased\n", "no date for 1.2.3"),
        ("v1.2.3", "/somewhere", "", "no address"),
    ],
)
def test_a_release_that_is_not_ready_writes_nothing(
    sources: Path, tag: str, address: str, log: str, words: str
) -> None:
    before = (sources / "pyproject.toml").read_text("utf-8")
    if log:
        (sources / "CHANGELOG.md").write_text(log)
    with pytest.raises(NotReady, match=words):
        prepare(tag, address, sources)
    assert (sources / "pyproject.toml").read_text("utf-8") == before


def test_the_workflow_is_off_until_it_is_switched_on() -> None:
    text = (ROOT / ".github" / "workflows" / "release.yml").read_text("utf-8")
    assert "if: vars.RELEASE == 'on'" in text
    assert "needs: build" in text
