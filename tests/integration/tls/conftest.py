"""Certificates that every server of this directory shows, or is asked to show."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat

from tests.servers.certificates import WORD, Authority


@dataclass(frozen=True, slots=True)
class Files:
    """Files in PEM, but for `keys`.

    `server` is a certificate for localhost with its key, `own` the certificate alone, `key` the key alone under the
    password WORD, `keys` both in PKCS12. `authority` has signed them, and `stranger` has not.
    """

    server: Path
    own: Path
    key: Path
    keys: Path
    authority: Path
    stranger: Path


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """The files of this run. The name 127.0.0.1 is the wrong one."""
    folder, elsewhere = tmp_path_factory.mktemp("certificates"), tmp_path_factory.mktemp("stranger")
    made = Authority()
    server, authority = made.pem(folder)
    keys, _ = made.pkcs12(folder)
    own, key = folder / "own.pem", folder / "key.pem"
    own.write_bytes(made.own.public_bytes(Encoding.PEM))
    key.touch(0o600)
    secret = BestAvailableEncryption(WORD.encode())
    key.write_bytes(made.own_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, secret))
    # the server of another user may read it
    folder.chmod(0o755)
    return Files(server, own, key, keys, authority, Authority().pem(elsewhere)[1])
