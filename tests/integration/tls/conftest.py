"""Certificates of the servers of this directory, and for their clients."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat

from tests.servers.certificates import WORD, Authority


@dataclass(frozen=True, slots=True)
class Files:
    """Files in PEM, except `keys`.

    `server` is a certificate for localhost with its key, `own` only the certificate, `key` only the key under the
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
    """Return the files of this run. The name 127.0.0.1 is wrong for them."""
    folder, elsewhere = tmp_path_factory.mktemp("certificates"), tmp_path_factory.mktemp("stranger")
    made = Authority()
    server, authority = made.pem(folder)
    keys, _ = made.pkcs12(folder)
    own, key = folder / "own.pem", folder / "key.pem"
    own.write_bytes(made.own.public_bytes(Encoding.PEM))
    key.touch(0o600)
    secret = BestAvailableEncryption(WORD.encode())
    key.write_bytes(made.own_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, secret))
    # A server of another user must be able to read it.
    folder.chmod(0o755)
    return Files(server, own, key, keys, authority, Authority().pem(elsewhere)[1])
