"""Tries to connect to servers, for parts of a pipeline that would notice an unreachable server late. Driver."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait

Place = tuple[str, int]
"""A host and a port."""

Ask = Callable[[socket.socket, Place], None]
"""Talks to a server on a new connection, whose time-out is the time left. Raises OSError or ValueError."""

_MOST = 5
"""Most places that are tried."""


def fault(places: Sequence[Place], seconds: float, ask: Ask = lambda *_: None) -> str:
    """Return why none of the places answers, as the end of a sentence; "" if one answers.

    Waits for all of them, at most some `seconds`.
    """
    tried = places[:_MOST]
    until = time.monotonic() + seconds
    pool = ThreadPoolExecutor(max(1, len(tried)), "tailrace-reach")
    try:
        asked = [pool.submit(_fault, place, until, ask) for place in tried]
        # a host name may be looked up for longer, which cannot be interrupted
        wait(asked, timeout=seconds + 0.5)
        faults = [answer.result() if answer.done() else "no answer" for answer in asked]
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    if not all(faults):
        return ""
    late = f"within {seconds:.0f} s"
    named = zip(tried, faults, strict=True)
    return "; ".join(f"{shown(place)}: {f'{text} {late}' if text == 'no answer' else text}" for place, text in named)


def shown(place: Place) -> str:
    """Return a place as `host:port`."""
    host, port = place
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _fault(place: Place, until: float, ask: Ask) -> str:
    try:
        with socket.create_connection(place, max(0.001, until - time.monotonic())) as connection:
            connection.settimeout(max(0.001, until - time.monotonic()))
            ask(connection, place)
    except TimeoutError:
        return "no answer"
    except socket.gaierror:
        return "the host name is not known"
    except (OSError, ValueError, UnicodeError) as error:
        return str(getattr(error, "strerror", None) or error).rstrip(".")
    return ""
