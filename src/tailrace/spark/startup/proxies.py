"""The proxy and the authorities of certificates by which this machine reaches others: those of pip and of Java. Driver.

Who has set up pip or Java behind a proxy has said all that is needed. In this order: Java's own options, pip's option
`proxy`, the variables HTTPS_PROXY, HTTP_PROXY and NO_PROXY, which pip follows too.
"""

from __future__ import annotations

import os
import re
import shlex
import ssl
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies

_VARIABLES = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS")
_JAVAS = re.compile(r"-D(https?)\.proxy(Host|Port)=(\S+)")
_BUNDLES = ("PIP_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
_PORTS = {"http": 80, "https": 443}


def proxies() -> dict[str, str]:
    """Return the proxy's address for each of the schemes http and https, and under `no` the hosts that need none.

    An address may hold a login: it is a secret.
    """
    java = _of_java()
    if java:
        return java
    pip = _of_pip()
    found = {"http": pip, "https": pip} if pip else {}
    named = getproxies()
    for scheme in ("http", "https"):
        text = found.get(scheme) or named.get(scheme)
        if text:
            found[scheme] = text if "://" in text else f"http://{text}"
    return found | ({"no": named["no"]} if found and named.get("no") else {})


def java_options(found: Mapping[str, str]) -> list[str]:
    """Return the options by which Java's programs use the proxies `found`; none if Java's own options name some.

    Logins are among them, as Ivy reads them. They belong into a file that only this user can read.
    """
    if _of_java():
        return []
    options: list[str] = []
    for scheme in ("http", "https"):
        parts = urlsplit(found.get(scheme, ""))
        if not parts.hostname:
            continue
        options += [f"-D{scheme}.proxyHost={parts.hostname}", f"-D{scheme}.proxyPort={_port(found[scheme])}"]
        if parts.username and scheme == "https":
            options += [f"-Dhttp.proxyUser={unquote(parts.username)}"]
            options += [f"-Dhttp.proxyPassword={unquote(parts.password or '')}"]
            # Java refuses a login in the clear for the way to a host of https, unless told otherwise.
            options += ["-Djdk.http.auth.tunneling.disabledSchemes="]
    if options and found.get("no"):
        hosts = (host.strip() for host in found["no"].split(","))
        options.append(
            f"-Dhttp.nonProxyHosts={'|'.join(f'*{host}' if host[0] == '.' else host for host in hosts if host)}"
        )
    return options


def trusted() -> ssl.SSLContext:
    """Return the authorities that Python trusts, and those of the file that pip is told of."""
    context = ssl.create_default_context()
    bundle = next(filter(None, (os.environ.get(name) for name in _BUNDLES)), None) or _configured("cert")
    if bundle:
        with suppress(OSError, ssl.SSLError):
            context.load_verify_locations(bundle)
    return context


def _port(address: str) -> int:
    parts = urlsplit(address)
    return parts.port or _PORTS.get(parts.scheme, 80)


def _of_java() -> dict[str, str]:
    """Return the proxies that Java's options in the environment name."""
    parts: dict[str, dict[str, str]] = {}
    for name in _VARIABLES:
        with suppress(ValueError):
            for option in shlex.split(os.environ.get(name, "")):
                found = _JAVAS.fullmatch(option)
                if found:
                    parts.setdefault(found[1], {})[found[2]] = found[3]
    return {
        scheme: f"http://{told['Host']}:{told.get('Port', _PORTS[scheme])}"
        for scheme, told in parts.items()
        if "Host" in told
    }


def _of_pip() -> str:
    """Return the proxy that pip is told of by its own option; "" without one."""
    text = os.environ.get("PIP_PROXY") or _configured("proxy")
    return text if not text or "://" in text else f"http://{text}"


def _configured(name: str) -> str:
    """Return an option of pip's configuration files; "" without one, or without pip."""
    command = [sys.executable, "-m", "pip", "config", "get", f"global.{name}"]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
