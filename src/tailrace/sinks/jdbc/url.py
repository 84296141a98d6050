"""Conversion of PostgreSQL's JDBC URLs to options of libpq. No I/O. Driver."""

from __future__ import annotations

from urllib.parse import parse_qsl, unquote, urlsplit

_START = "jdbc:postgresql:"
_OPTIONS = {
    "user": "user", "password": "password", "sslmode": "sslmode", "sslrootcert": "sslrootcert", "sslcert": "sslcert",
    "sslkey": "sslkey", "sslpassword": "sslpassword", "ApplicationName": "application_name",
    "connectTimeout": "connect_timeout", "loginTimeout": "connect_timeout", "options": "options",
    "channelBinding": "channel_binding", "gssEncMode": "gssencmode",
}  # fmt: skip
"""Options of libpq by the parameters of the JDBC driver with the same meaning."""
_SESSIONS = {"any": "any", "primary": "primary", "master": "primary", "secondary": "standby", "slave": "standby",
             "preferSecondary": "prefer-standby", "preferPrimary": "any"}  # fmt: skip
# Parameters that tune the JDBC driver and do not affect what is written.
_IDLE = frozenset(
    [
        "reWriteBatchedInserts",
        "prepareThreshold",
        "preparedStatementCacheQueries",
        "preparedStatementCacheSizeMiB",
        "defaultRowFetchSize",
        "stringtype",
        "binaryTransfer",
        "tcpKeepAlive",
        "tcpNoDelay",
        "logUnclosedConnections",
        "autosave",
        "adaptiveFetch",
        "loadBalanceHosts",
        "assumeMinServerVersion",
    ]
)


def libpq(url: str) -> dict[str, str]:
    """Return the options of libpq for a URL. Raises ValueError; its message continues a sentence after the option's
    name."""
    if not url.startswith("jdbc:"):
        raise ValueError("must begin with jdbc:postgresql:")
    if not url.startswith(_START):
        raise ValueError(f"names a database that is not supported ({url.split(':')[1]}): only jdbc:postgresql: is")
    rest = url.removeprefix(_START)
    parts = urlsplit(rest if rest.startswith("//") else f"///{rest}")
    if "@" in parts.netloc:
        raise ValueError("must hold no user before the host; give connection.username")
    hosts = [host.rpartition(":") if _has_port(host) else (host, "", "5432") for host in parts.netloc.split(",")]
    found = {
        "host": ",".join(host.strip("[]") or "localhost" for host, _, _ in hosts),
        "port": ",".join(port for _, _, port in hosts),
    }
    database = unquote(parts.path.lstrip("/"))
    if database:
        found["dbname"] = database
    for name, text in parse_qsl(parts.query, keep_blank_values=True):
        if name in _OPTIONS:
            found[_OPTIONS[name]] = text
        elif name == "ssl":
            found.setdefault("sslmode", "prefer" if text == "false" else "verify-full")
        elif name == "currentSchema":
            path = text.replace("\\", "\\\\").replace(" ", "\\ ")
            found["options"] = f"{found.get('options', '')} -csearch_path={path}".strip()
        elif name == "targetServerType" and text in _SESSIONS:
            found["target_session_attrs"] = _SESSIONS[text]
        elif name not in _IDLE:
            raise ValueError(f"has the parameter {name}, which is not supported")
    return found


def _has_port(host: str) -> bool:
    return host.rpartition(":")[2].isdigit() and not host.endswith("]")
