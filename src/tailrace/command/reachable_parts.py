"""The parts of a pipeline beside its database that must answer: the sink, registries, stores, signals. Driver."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from tailrace.config.files import RunConfig
from tailrace.connectors.findings import Finding
from tailrace.errors import ConnectionFailed
from tailrace.process import reachability
from tailrace.sinks import brokers
from tailrace.sinks.base import Sink

_REGISTRY = re.compile(r"(?:key|value|header)\.converter\.(?:schema|apicurio)\.registry\.url", re.IGNORECASE)
_PROXIES = ("http_proxy", "https_proxy", "all_proxy")
_PORTS = {"https": 443, "hdfs": 8020}
_WEB = 80
_ENDPOINT = "spark.hadoop.fs.s3a.endpoint"


def demand(run: RunConfig, sink: Sink, conf: Mapping[str, str], *, local: bool) -> list[Finding]:
    """Return a finding for each part. Raises ConnectionFailed if a part does not answer and Spark is local.

    On a cluster the executors may reach a part that this host does not.
    """
    found = findings(run, sink, conf)
    failed = [finding for finding in found if finding.level == "error"]
    if failed and local:
        raise ConnectionFailed(" ".join(finding.text for finding in failed), failed[0].remedy)
    return found


def findings(run: RunConfig, sink: Sink, conf: Mapping[str, str]) -> list[Finding]:
    """Ask all parts at the same time; return a finding for each. Takes at most about `connect.timeout.ms`."""
    seconds = run.source["connect.timeout.ms"] / 1000
    asked: list[Callable[[], list[Finding]]] = [sink.asked, partial(_signals, run, seconds)]
    asked += [partial(_found, *place, seconds) for place in _places(run, sink, conf)]
    with ThreadPoolExecutor(len(asked), "tailrace-ask") as pool:
        return [finding for found in pool.map(lambda ask: ask(), asked) for finding in found]


def _found(what: str, place: reachability.Place, option: str, seconds: float) -> list[Finding]:
    reason = reachability.fault([place], seconds)
    if not reason:
        return [Finding("ok", what, f"The {what} {reachability.shown(place)} answers.")]
    return [Finding("error", what, f"The {what} is not reached: {reason}.", f"Check {option} and the network.")]


def _places(run: RunConfig, sink: Sink, conf: Mapping[str, str]) -> Iterator[tuple[str, reachability.Place, str]]:
    """Yield registries and stores: the word for each, its place, and the option that names it."""
    seen = set()
    has_proxy = any(os.environ.get(name) or os.environ.get(name.upper()) for name in _PROXIES)
    for name, text in run.source.given.items():
        # through a proxy a registry has no address here
        for url in text.split(",") if _REGISTRY.fullmatch(name) and not has_proxy else ():
            place = _place(url)
            if place is not None and place not in seen:
                seen.add(place)
                yield "registry", place, name
    for option, text in (
        ("checkpoint.location", run.checkpoint_location),
        (f"debezium.sink.{sink.name}.path", sink.folder or run.sink.options.get("path", "")),
    ):
        scheme = text.partition(":")[0].lower()
        url = conf.get(_ENDPOINT, "") if scheme == "s3a" else text if scheme == "hdfs" else ""
        place = _place(url if "://" in url or not url else f"https://{url}")
        if place is not None and place not in seen:
            seen.add(place)
            yield "store", place, f"{option} and --conf {_ENDPOINT}" if scheme == "s3a" else option


def _place(url: str) -> reachability.Place | None:
    try:
        parts = urlsplit(url.strip())
        if not parts.hostname:
            return None
        return parts.hostname, parts.port or _PORTS.get(parts.scheme.lower(), _WEB)
    except ValueError:
        return None


def _signals(run: RunConfig, seconds: float) -> list[Finding]:
    """Return a warning if the brokers of the channel for signals do not answer: the pipeline runs without them."""
    config: Mapping[str, Any] = run.source
    if "kafka" not in config["signal.enabled.channels"]:
        return []
    options = {name.lower(): str(config[name]) for name in config if name.lower().startswith("signal.consumer.")}
    protocol = options.get("signal.consumer.security.protocol", "")
    reason = brokers.fault(config["signal.kafka.bootstrap.servers"] or [], protocol, seconds)
    if not reason:
        return []
    text = f"The brokers of the channel for signals do not answer: {reason}."
    return [Finding("warning", "signals", text, "Check signal.kafka.bootstrap.servers and the network.")]
