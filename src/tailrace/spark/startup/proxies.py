"""The proxies and certificate authorities for downloads, from the configuration of pip and Java. Driver.

A machine whose pip or Java is set up for a proxy needs no further configuration. The sources of proxies are, in this
order: Java's own options, pip's option `proxy`, and the variables HTTPS_PROXY, HTTP_PROXY and NO_PROXY, which pip also
uses.
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
    """Return Java's options for the proxies `found`; an empty list if Java's own options already name proxies.

    The options include logins, as Ivy reads them. Pass them in a file that only this user can read.
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
            # By default, Java refuses Basic authentication at a proxy for connections to a host of https.
            options += ["-Djdk.http.auth.tunneling.disabledSchemes="]
    if options and found.get("no"):
        hosts = (host.strip() for host in found["no"].split(","))
        options.append(
            f"-Dhttp.nonProxyHosts={'|'.join(f'*{host}' if host[0] == '.' else host for host in hosts if host)}"
        )
    return options


def trusted() -> ssl.SSLContext:
    """Return a context with the certificate authorities that Python trusts, and those in the file that pip's options
    name."""
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
        scheme: f"http://{named['Host']}:{named.get('Port', _PORTS[scheme])}"
        for scheme, named in parts.items()
        if "Host" in named
    }


def _of_pip() -> str:
    """Return the proxy of pip's own option; "" without one."""
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
