"""Options `driver.…` of SQL Server: properties of Microsoft's Java driver that its driver for Python also has. No I/O.

Debezium passes `driver.NAME` (and, in 1.x, `database.NAME`) to mssql-jdbc. The names here are the same, each mapped to
the equivalent keyword of the ODBC connection string ("DSN and connection string keywords and attributes" in the
documentation of the ODBC driver; "Setting the connection properties" in that of the JDBC driver).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tailrace.config.option import Check, Kind, Option, at_least, between

_STORE = "Java key stores are not read: name the server's certificate, PEM or DER, in driver.serverCertificate, or let \
the operating system trust its issuer"
_JAVA = "it tunes Microsoft's Java driver"
_OTHER = "Microsoft's driver for Python has no such property"


def _same(name: str) -> tuple[str, ...]:
    return (f"database.{name}",)


def _use(option: str) -> str:
    return f"give it as {option}"


def _authentication_fault(word: str) -> str:
    return "" if word.lower() in _AUTHENTICATIONS else f"must be one of {', '.join(AUTHENTICATIONS)}, not {word!r}"


AUTHENTICATIONS = {
    "NotSpecified": "",
    "SqlPassword": "",
    "ActiveDirectoryPassword": "ActiveDirectoryPassword",
    "ActiveDirectoryIntegrated": "ActiveDirectoryIntegrated",
    "ActiveDirectoryManagedIdentity": "ActiveDirectoryMSI",
    "ActiveDirectoryMSI": "ActiveDirectoryMSI",
    "ActiveDirectoryServicePrincipal": "ActiveDirectoryServicePrincipal",
    "ActiveDirectoryDefault": "ActiveDirectoryDefault",
}
"""Kinds of login that need no user interaction, and the ODBC driver's words for them; "" for the default."""

_AUTHENTICATIONS = {word.lower(): keyword for word, keyword in AUTHENTICATIONS.items()}

_ENCRYPT = {"true": "yes", "mandatory": "yes", "yes": "yes", "false": "no", "optional": "no", "no": "no",
            "strict": "strict"}  # fmt: skip
_FAMILIES = {"ipv4first": "IPv4First", "ipv6first": "IPv6First", "useplatformdefault": "UsePlatformDefault"}


def _among(words: Mapping[str, str]) -> Check:
    return lambda word: "" if word.lower() in words else f"must be one of {', '.join(words)}, not {word!r}"


_TUNING = (
    # the first ones are properties of other drivers, which Microsoft's ignores
    "autoReconnect", "maxReconnects", "connectTimeout", "tcpKeepAlive", "useSSL", "serverTimezone",
    "bulkCopyForBatchInsert.+", "cacheBulkCopyMetadata", "calcBigDecimalPrecision", "cancelQueryTimeout",
    "concatNullYieldsNull", "datetimeParameterType", "delayLoadingLobs", "disableStatementPooling",
    "enablePrepareOnFirstPreparedStatementCall", "ignoreOffsetOnDateTimeOffsetConversion", "lastUpdateCount",
    "maxResultBuffer", "prepareMethod", "quotedIdentifier", "replication", "responseBuffering", "selectMethod",
    "sendStringParametersAsUnicode", "sendTemporalDataTypesAsStringForBulkCopy", "sendTimeAsDatetime",
    "serverNameAsACE", "serverPreparedStatementDiscardThreshold", "socketTimeout", "statementPoolingCacheSize",
    "transparentNetworkIPResolution", "useBulkCopyForBatchInsert", "useFmtOnly", "vectorTypeSupport", "xopenStates",
)  # fmt: skip

DRIVER = (
    Option("driver.encrypt", Kind.TEXT,
           "Whether the connection is encrypted: true, false (only the login, unless the server demands more), "
           "strict (TDS 8.0). With database.server.name the default is false, as in Debezium "
           "1.x.", "true", check=_among(_ENCRYPT), aliases=_same("encrypt")),
    Option("driver.trustServerCertificate", Kind.BOOLEAN, "Accept any certificate of the server.", False,
           aliases=_same("trustServerCertificate")),
    Option("driver.hostNameInCertificate", Kind.TEXT, "Name that the certificate must have, if not the host's.",
           aliases=_same("hostNameInCertificate")),
    Option("driver.serverCertificate", Kind.TEXT, "Path of the certificate that the server must have, PEM or DER.",
           aliases=_same("serverCertificate")),
    Option("driver.authentication", Kind.TEXT,
           f"Kind of login, for Microsoft Entra: one of {', '.join(AUTHENTICATIONS)}.",
           check=_authentication_fault, aliases=_same("authentication")),
    Option("driver.integratedSecurity", Kind.BOOLEAN, "Log in as the process's user, by Kerberos.", False,
           aliases=_same("integratedSecurity")),
    Option("driver.serverSpn", Kind.TEXT, "The server's name in Kerberos.", aliases=_same("serverSpn")),
    Option("driver.applicationIntent", Kind.TEXT,
           "ReadOnly reads a readable secondary of an availability group. Nothing is written then, and chunks are read "
           "under snapshot isolation.", "ReadWrite",
           choices=("ReadWrite", "ReadOnly"), aliases=_same("applicationIntent")),
    Option("driver.multiSubnetFailover", Kind.BOOLEAN, "Try all addresses of the host at once.", False,
           aliases=_same("multiSubnetFailover")),
    Option("driver.iPAddressPreference", Kind.TEXT, "Kind of address to try first.", "IPv4First",
           check=_among(_FAMILIES), aliases=_same("iPAddressPreference")),
    Option("driver.connectRetryCount", Kind.INTEGER,
           "Retries of a connection by the driver itself; errors.max.retries retries anyway.", 0,
           check=between(0, 255), aliases=_same("connectRetryCount")),
    Option("driver.connectRetryInterval", Kind.INTEGER, "Time between two tries of the driver, in s.", 10,
           check=between(1, 60), aliases=_same("connectRetryInterval")),
    Option("driver.loginTimeout", Kind.INTEGER,
           "Longest time of a login, in s; unset: connection.validation.timeout.ms.", check=at_least(1),
           aliases=_same("loginTimeout")),
    Option("driver.packetSize", Kind.INTEGER, "Size of a network packet, in bytes.", 8000, check=between(512, 32767),
           aliases=_same("packetSize")),
    Option("driver.applicationName", Kind.TEXT, "Name of the program in the server's views.",
           unsupported="Microsoft's driver for Python shows a name of its own", aliases=_same("applicationName")),
    Option("driver.authenticationScheme", Kind.TEXT, "How the process logs in.", "JavaKerberos",
           unsupported="Kerberos is what driver.integratedSecurity uses", neutral=("nativeAuthentication",),
           aliases=_same("authenticationScheme")),
    Option("driver.columnEncryptionSetting", Kind.TEXT, "Always Encrypted.", "Disabled", neutral=("disabled",),
           unsupported="change tables hold the encrypted bytes", aliases=_same("columnEncryptionSetting")),
    Option("driver.failoverPartner", Kind.TEXT, "Mirror of the database.", aliases=_same("failoverPartner"),
           unsupported=_OTHER),
    Option("driver.queryTimeout", Kind.INTEGER, "Seconds of a statement.", -1, aliases=_same("queryTimeout"),
           unsupported=_use("database.query.timeout.ms")),
    Option("driver.lockTimeout", Kind.INTEGER, "Wait for locks, in ms.", -1, aliases=_same("lockTimeout"),
           unsupported=_use("snapshot.lock.timeout.ms")),
    Option("driver.<login>", Kind.SECRET, "Parts of the login and the server's address.",
           pattern=r"driver\.(user|userName|password|databaseName|database|serverName|server|instanceName|portNumber|port)",
           unsupported="use the database.* option with the same meaning"),
    Option("driver.<store>", Kind.SECRET, "Java key stores.",
           pattern=r"(driver|database)\.(trustStore\w*|keyStore\w*|keyVault\w+|client(Certificate|Key|KeyPassword)"
           r"|trustManager\w+|ssl\.(?!mode$).+)", unsupported=_STORE),
    Option("driver.<tuning>", Kind.TEXT, "Properties that tune the Java driver.",
           pattern=rf"(driver|database)\.({'|'.join(_TUNING)})", notice=_JAVA),
    Option("driver.<property>", Kind.SECRET, "Any other property.", pattern=r"driver\..+", unsupported=_OTHER),
)  # fmt: skip


def keywords(values: Mapping[str, Any]) -> dict[str, str]:
    """Return the keywords of an ODBC connection string for the options of this module."""
    found = {
        "Encrypt": _ENCRYPT[values["driver.encrypt"].lower()],
        "TrustServerCertificate": "yes" if values["driver.trustServerCertificate"] else "no",
        "HostnameInCertificate": values["driver.hostNameInCertificate"],
        "ServerCertificate": values["driver.serverCertificate"],
        "Authentication": _AUTHENTICATIONS[(values["driver.authentication"] or "NotSpecified").lower()],
        "Trusted_Connection": "yes" if values["driver.integratedSecurity"] else "",
        "ServerSPN": values["driver.serverSpn"],
        "ApplicationIntent": values["driver.applicationIntent"],
        "MultiSubnetFailover": "yes" if values["driver.multiSubnetFailover"] else "",
        "IpAddressPreference": _FAMILIES[values["driver.iPAddressPreference"].lower()],
        "ConnectRetryCount": str(values["driver.connectRetryCount"]),
        "ConnectRetryInterval": str(values["driver.connectRetryInterval"]),
        "PacketSize": str(values["driver.packetSize"]),
    }
    return {name: text for name, text in found.items() if text}
