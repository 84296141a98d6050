"""Send a signal as a document of the signal collection. Driver."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tailrace.config import Config
from tailrace.connectors import advice
from tailrace.connectors.mongodb.log.namespaces import split
from tailrace.connectors.mongodb.server.connection import Address, connect
from tailrace.connectors.mongodb.server.faults import explained_error
from tailrace.connectors.mongodb.snapshot.chunks import condition
from tailrace.errors import ConfigError, PrerequisiteError
from tailrace.snapshot.signals import ExecuteSnapshot, Signal, read

SIGNALS = f"{advice.ROLE}Signals"
"""The name of the role that `signal_role` creates."""

_UNAUTHORIZED = 13


def send(config: Config, signal: Signal) -> str:
    """Insert the signal's document, and return the collection's name with its database.

    Raises ConfigError if no collection is named or a condition is not a query, PrerequisiteError if the server refuses
    the document, and ConnectionFailed.
    """
    from pymongo.errors import DuplicateKeyError, OperationFailure, PyMongoError

    name = str(config["signal.data.collection"] or "")
    database, collection = split(name)
    if not database or not collection:
        raise ConfigError("No signal collection is named.", "Name one in signal.data.collection, as database.name.")
    document = _document(signal)
    client = connect(Address.of(config))
    try:
        client[database][collection].insert_one(document)
    except DuplicateKeyError:
        raise PrerequisiteError(
            f"The signal collection {name} has a signal of this id already.", "Give another --id."
        ) from None
    except OperationFailure as error:
        if error.code != _UNAUTHORIZED:
            raise explained_error(error) from None
        raise PrerequisiteError(
            f"The user {config['mongodb.user'] or 'that is logged in'} may not write to the signal collection {name}.",
            f'db.getSiblingDB("admin").{signal_role(config)}; db.getSiblingDB("admin").grantRolesToUser(…, '
            f'["{SIGNALS}"]);',
        ) from None
    except PyMongoError as error:
        raise explained_error(error) from None
    finally:
        client.close()
    return name


def signal_role(config: Mapping[str, Any]) -> str:
    """Return the shell's call that creates a role which may only write the signal collection."""
    database, collection = split(str(config["signal.data.collection"]))
    deletes = config["incremental.snapshot.watermarking.strategy"] == "insert_delete"
    actions = '"insert", "remove"' if deletes else '"insert"'
    return (
        f'createRole({{ role: "{SIGNALS}", privileges: [{{ resource: {{ db: "{database}", collection: "{collection}" '
        f"}}, actions: [{actions}] }}], roles: [] }})"
    )


def _document(signal: Signal) -> dict[str, Any]:
    """Return the document in Debezium's form: `_id`, `type`, and `data` as a document if the signal has any."""
    action = read(signal)
    if isinstance(action, ExecuteSnapshot):
        for of, text in action.conditions:
            try:
                condition(text)
            except ValueError as fault:
                raise ConfigError(
                    f"The condition for {of} is not a query of MongoDB: it {fault}.", "Write it as a JSON object."
                ) from None
    document: dict[str, Any] = {"_id": signal.id, "type": signal.type}
    if signal.data is not None:
        document["data"] = json.loads(signal.data)
    return document
