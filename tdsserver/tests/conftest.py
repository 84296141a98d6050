"""The server of these tests, also where they are run by themselves."""

from __future__ import annotations

pytest_plugins = ["tdsserver.fixtures"]
