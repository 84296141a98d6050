"""Options `driver.…` of Db2: keywords of IBM's CLI driver, and equivalent Java properties of IBM. No I/O.

Debezium passes `driver.NAME` (in 1.x also `database.NAME`) to IBM's Java driver. The driver here is CLI. Its keywords
("CLI/ODBC configuration keywords" in Db2's documentation) are passed unchanged, after a check against the list below,
since CLI ignores unknown ones. Java properties ("Common IBM Data Server Driver for JDBC and SQLJ properties") are
translated if they have an equivalent; those that need a Java key store are refused.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

PREFIX = "driver."

KEYWORDS = (
    "AcceptCertificateWithIncorrectName", "AccessToken", "AccessTokenType", "AllowedCursorTypes",
    "Alternateserverlist", "APIKey", "Authentication", "AuthenticationProvider", "BlockForNRows", "BlockLobs",
    "CertLabel", "ClientAcctStr", "ClientApplCompat", "ClientApplName", "ClientCodepage", "ClientEncAlg",
    "ClientUserID", "ClientWrkStnName", "CommProtocol", "ConcurrentAccessResolution", "ConnectCodepage",
    "ConnectTimeout", "CurrentFunctionPath", "CurrentPackagePath", "CurrentPackageSet", "CurrentRefreshAge",
    "CurrentSchema", "CurrentSQLID", "DecimalFloatRoundingMode", "DeferredPrepare", "DescribeInputOnPrepare",
    "DescribeOutputLevel", "DisableUnicode", "enableAcr", "enableAlternateServerListFirstConnect",
    "enableSeamlessAcr", "enableWLB", "FET_BUF_SIZE", "FileDSN", "FloatPrecRadix", "Interrupt", "IPCInstance",
    "KeepAliveTimeout", "KeepDynamic", "LOBCacheSize", "LockTimeout", "LOBFileThreshold", "LOBMaxColumnSize",
    "MapCharToWChar", "MapDateCDefault", "maxAcrRetries", "MaxLOBBlockSize", "MemberConnectTimeout",
    "NetworkStatistics", "OverrideCharacterCodepage", "Patch1", "Patch2", "Protocol", "PWDPlugin",
    "QueryTimeoutInterval", "ReadCommonSectionOnNullDSN", "ReceiveTimeout", "Reopt", "RetryOnError",
    "ReturnAliases", "ReturnSynonymSchema", "SSLClientHostnameValidation", "Security", "SecurityTransportMode",
    "ServerCertHostnameValidation", "ServiceName", "SessionTimeZone", "ServerType", "SSLClientKeystash",
    "SSLClientKeystoredb", "SSLClientKeystoreDBPassword", "SSLClientLabel", "SSLCipherSpecs",
    "SSLServerCertificate", "SSLVersion", "StaticMode", "StreamGetData", "TargetPrincipal", "TcpipConnectTimeout",
    "TLSVersion", "Trace", "TraceFileName", "TracePathName", "TxnIsolation", "UseServerMsgSP",
    "UseServerMsgTextMask", "WarningList", "XMLDeclaration", "zOSCollectStats",
)  # fmt: skip
"""CLI's keywords that may be in a connection string in addition to those of the options."""

_OWN = {
    "database": "database.dbname", "dbalias": "database.dbname", "dsn": "database.dbname",
    "hostname": "database.hostname", "port": "database.port", "servicename": "database.port",
    "uid": "database.user", "pwd": "database.password", "user": "database.user", "password": "database.password",
    "protocol": "", "autocommit": "", "filedsn": "",
}  # fmt: skip
"""Keywords that options replace, and those that the connector sets itself."""

_JAVA = {
    "sslcertlocation": "SSLServerCertificate",
    "currentschema": "CurrentSchema",
    "currentsqlid": "CurrentSQLID",
    "logintimeout": "ConnectTimeout",
    "connectiontimeout": "ConnectTimeout",
    "blockingreadconnectiontimeout": "ReceiveTimeout",
    "clientprogramname": "ClientApplName",
    "clientapplicationinformation": "ClientApplName",
    "clientuser": "ClientUserID",
    "clientworkstation": "ClientWrkStnName",
    "clientaccountinginformation": "ClientAcctStr",
    "accesstoken": "AccessToken",
    "apikey": "APIKey",
    "enableseamlessfailover": "enableSeamlessAcr",
    "enablesysplexwlb": "enableWLB",
    "sslcipherspecs": "SSLCipherSpecs",
    "sslversion": "SSLVersion",
    "currentpackageset": "CurrentPackageSet",
    "currentpackagepath": "CurrentPackagePath",
    "currentfunctionpath": "CurrentFunctionPath",
}  # fmt: skip
"""Java properties, in lower case, and the keywords with the same values and meaning."""

_SECURITY = {"3": "SERVER", "4": "SERVER", "7": "SERVER_ENCRYPT", "9": "SERVER_ENCRYPT", "11": "KERBEROS",
             "13": "SERVER_ENCRYPT_AES", "15": "GSSPLUGIN", "18": "CERTIFICATE"}  # fmt: skip
"""Java's numbers of `securityMechanism`, and CLI's words for Authentication."""

_IDLE = frozenset(
    (
        *("retrievemessagesfromserverongetmessage", "progressivestreaming", "fullymaterializelobdata"),
        *("deferprepares", "fetchsize", "tracelevel", "tracefile", "tracedirectory", "resultsetholdability"),
        *("allownextonexhaustedresultset", "cursorsensitivity", "drivertype", "emulateparametermetadataforzcalls"),
    )
)
"""Java properties that tune features that the CLI driver lacks, and that change no value: ignored, with a warning."""

_KEYWORDS = {keyword.lower(): keyword for keyword in KEYWORDS}


def property_fault(name: str, text: str) -> str:
    """Return the fault of the option `name` (with its prefix) and its value, or ""."""
    short = name[len(PREFIX) :]
    lower = short.lower()
    if any(sign in text for sign in ";{}"):
        return f"{name} holds a semicolon or a brace, which the driver's connection string cannot carry"
    if lower in _OWN and (lower != "password" or text):
        option = _OWN[lower]
        return f"{name} is not supported: " + (f"give it as {option}" if option else "the connector sets it itself")
    if lower == "sslconnection":
        return "" if text.strip().lower() in ("true", "false") else f"{name} must be true or false"
    if lower == "securitymechanism":
        known = text.strip() in _SECURITY
        return (
            ""
            if known
            else f"{name} has a number that is not supported: give CLI's word for it as driver.Authentication"
        )
    if "truststore" in lower or "keystorelocation" in lower or lower in ("sslkeystorepassword", "sslkeystoretype"):
        return (
            f"{name} is not supported: Java key stores are not read; name the server's certificate in "
            "driver.SSLServerCertificate, or IBM's key database in driver.SSLClientKeystoredb and "
            "driver.SSLClientKeystash"
        )
    if lower in _JAVA or lower in _KEYWORDS or lower in _IDLE:
        return ""
    known_names = {**_KEYWORDS, **{java: java for java in _JAVA}}
    close = difflib.get_close_matches(lower, known_names, n=1, cutoff=0.6)
    nearest = f"; the nearest is driver.{known_names[close[0]]}" if close else ""
    return f"{name} is not a known keyword of IBM's CLI driver, and the driver would ignore it{nearest}"


def idle_notice(name: str) -> str:
    """Return why an accepted property has no effect; "" if it has one."""
    if name[len(PREFIX) :].lower() not in _IDLE:
        return ""
    return f"{name} has no effect: it tunes IBM's Java driver, and the driver here is IBM's CLI driver."


def driver_properties(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the keywords of the connection string for the `driver.…` options of a configuration."""
    found: dict[str, str] = {}
    for name, text in config.items():
        if not name.lower().startswith(PREFIX):
            continue
        lower, value = name[len(PREFIX) :].lower(), str(text).strip()
        if lower == "sslconnection":
            if value.lower() == "true":
                found["Security"] = "SSL"
        elif lower == "securitymechanism":
            found["Authentication"] = _SECURITY[value]
        elif lower in _JAVA:
            found[_JAVA[lower]] = value
        elif lower in _KEYWORDS:
            found[_KEYWORDS[lower]] = value
    return found
