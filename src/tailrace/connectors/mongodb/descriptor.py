"""The descriptor of the MongoDB connector."""

from __future__ import annotations

from tailrace.config.connector import Traits
from tailrace.connectors.descriptor import Descriptor

_ROOM = "tailrace.connectors.mongodb"
_STATE = f"{_ROOM}.documents.state"

CONNECTOR = Descriptor(
    traits=Traits(
        connector="mongodb",
        event_name="mongodb",
        bean_has_task=True,
        bean_disconnects=("streaming", "snapshot"),
        address="mongodb.connection.string",
        versions={"1.1": "1.1.2.Final", "3": "3.6.1.Final"},
        gives_blocks=True,
        transforms={
            "io.debezium.connector.*.transforms.ExtractNewDocumentState": f"{_STATE}:extract_new_document_state",
            "io.debezium.connector.*.transforms.outbox.MongoEventRouter": (
                "tailrace.transforms.outbox.document_outbox:document_event_router"
            ),
            "io.debezium.transforms.ExtractNewRecordState": f"{_STATE}:in_the_place_of_rows",
            "io.debezium.transforms.UnwrapFromEnvelope": f"{_STATE}:in_the_place_of_rows",
        },
    ),
    title="MongoDB",
    class_name="io.debezium.connector.mongodb.MongoDbConnector",
    asked=(("mongodb.connection.string", ""),),
    removal=f"{_ROOM}.setup.removal:REMOVAL",
    survey=f"{_ROOM}.setup.survey:SURVEY",
    names=("mongodb", "mongodbconnector", "mongo"),
    options=f"{_ROOM}.options:OPTIONS",
    planner=f"{_ROOM}.planner:MongoPlanner",
    prerequisites=f"{_ROOM}.setup.prerequisites",
    send_signal=f"{_ROOM}.snapshot.signalling:send",
    describe=f"{_ROOM}.status:describe",
    signal_place="document of the signal collection",
    drivers=("pymongo", "bson"),
    loaded=("bson", f"{_ROOM}.records.records", f"{_ROOM}.records.tasks"),
    requirement="tailrace[mongodb]",
    documents=f"{_ROOM}.documents.entrance",
    retention="tailrace.connectors.mongodb.retention:retention",
    verify_source=f"{_ROOM}.verify_source:compared",
    consistent_read=f"{_ROOM}.consistent_read:held",
)
