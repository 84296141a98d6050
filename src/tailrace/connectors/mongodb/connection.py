"""Connections to MongoDB. Planner and worker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pymongo import MongoClient


@dataclass(frozen=True, slots=True)
class Address:
    """How to connect: picklable, holds the password."""

    uri: str = field(repr=False)

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Address:
        string = config["mongodb.connection.string"]
        if string:
            return cls(string)
        name, _, hosts = config["mongodb.hosts"].rpartition("/")
        return cls(f"mongodb://{hosts}/?replicaSet={name}" if name else f"mongodb://{hosts}/")


def connect(address: Address) -> MongoClient[Any]:
    from pymongo import MongoClient

    return MongoClient(address.uri, serverSelectionTimeoutMS=15000)
