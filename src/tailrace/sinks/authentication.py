"""Authentication of the sink `http`: JWT, OAuth 2 client credentials, Standard Webhooks. Driver.

Tokens and secrets stay in this process; no error and no log line shows one.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Protocol
from urllib.parse import quote, urlencode

from tailrace.errors import ConnectionFailed, SinkError
from tailrace.sinks.base import Settings
from tailrace.sinks.web import FAILURES, Address, Answer, WebClient, failure

_AREA = "authentication."
_JWT = ("username", "password", "url", "token_expiration", "refresh_token_expiration")
_OAUTH2 = ("client_id", "client_secret", "token_url", "scope", "client_auth_method", "token_url.http_method")
_PARAMS = f"{_AREA}oauth2.params."
_WEBHOOK = "whsec_"

OPTIONS = (
    f"{_AREA}type",
    *(f"{_AREA}jwt.{name}" for name in _JWT),
    *(f"{_AREA}oauth2.{name}" for name in _OAUTH2),
    f"{_AREA}webhook.secret",
)
"""The options of authentication, in addition to options that begin with PARAMS."""
PARAMS = _PARAMS

# A token is renewed this long before it expires, so that it does not expire on its way.
_EARLY_S = 30.0

Clock = Callable[[], float]


class Authentication(Protocol):
    """Provides the headers that authenticate a request."""

    def headers(self, message: str, body: bytes) -> dict[str, str]:
        """Return headers for a request with `body`. `message` is the same id for all attempts of a request.

        Raises ConnectionFailed if the token server cannot be reached, and SinkError if it returns no token.
        """
        ...

    def renew(self) -> bool:
        """Discard a refused token. Return False if there was none, so that another attempt would be useless."""
        ...


class NoAuthentication:
    """The provider for requests without authentication."""

    def headers(self, message: str, body: bytes) -> dict[str, str]:
        return {}

    def renew(self) -> bool:
        return False


class Webhooks:
    """Standard Webhooks: a signature of each request by a shared secret."""

    def __init__(self, settings: Settings, now: Clock = time.time) -> None:
        option = f"{_AREA}webhook.secret"
        secret = settings.required(option).removeprefix(_WEBHOOK)
        try:
            self._secret = base64.b64decode(secret, validate=True)
        except (binascii.Error, ValueError):
            raise settings.wrong(option, "must be in base64, with or without whsec_ before it") from None
        if not 24 <= len(self._secret) <= 64:
            raise settings.wrong(option, "must have between 24 and 64 bytes")
        self._now = now

    def headers(self, message: str, body: bytes) -> dict[str, str]:
        at = str(int(self._now()))
        signed = hmac.new(self._secret, f"{message}.{at}.".encode() + body, hashlib.sha256).digest()
        signature = base64.b64encode(signed).decode()
        return {"webhook-id": message, "webhook-timestamp": at, "webhook-signature": f"v1,{signature}"}

    def renew(self) -> bool:
        return False


class Bearer(ABC):
    """A bearer token from a server, which is fetched again before it expires or when it is refused."""

    what = ""

    def __init__(self, now: Clock = time.monotonic) -> None:
        self._now = now
        self._token = ""
        self._ends: float | None = None

    def headers(self, message: str, body: bytes) -> dict[str, str]:
        if not self._token or (self._ends is not None and self._now() >= self._ends):
            self._token, lasts = self._fetch()
            # A token that lasts less than twice the margin is used for half of its lifetime.
            self._ends = None if lasts is None else self._now() + max(lasts - _EARLY_S, lasts / 2)
        return {"Authorization": f"Bearer {self._token}"}

    def renew(self) -> bool:
        had, self._token = bool(self._token), ""
        return had

    @abstractmethod
    def _fetch(self) -> tuple[str, float | None]:
        """Fetch a token. Return it and its lifetime in seconds, None if the lifetime is unknown."""

    def _ask(self, client: WebClient, method: str, headers: Mapping[str, str], body: bytes, query: str = "") -> Answer:
        try:
            return client.send(method, headers.items(), body, query)
        except FAILURES as error:
            raise ConnectionFailed(
                f"The token server {client.address.shown} cannot be reached: {failure(error)}.",
                f"Check debezium.sink.http.{_AREA}{self.what}.",
            ) from None
        finally:
            client.close()

    def _read(self, client: WebClient, answer: Answer, field: str) -> dict[str, Any]:
        """Return the answer's JSON object. Raises ConnectionFailed or SinkError if it has no text called `field`."""
        said = f"status {answer.status}"
        if answer.status >= 500 or answer.status == 429:
            raise ConnectionFailed(
                f"{client.address.shown} gives no token: {said}.", f"Check debezium.sink.http.{_AREA}{self.what}."
            )
        if answer.is_success:
            try:
                found = json.loads(answer.body)
            except ValueError:
                found = None
            if isinstance(found, dict) and isinstance(found.get(field), str) and _is_printable(found[field]):
                return found
            said = f"its answer has no {field}"
        raise SinkError(
            f"{client.address.shown} gives no token: {said}.", f"Check debezium.sink.http.{_AREA}{self.what}.*."
        )


class Jwt(Bearer):
    """A token obtained with user and password, and renewed with its refresh token."""

    what = "jwt"

    def __init__(self, settings: Settings, timeout: float, now: Clock = time.monotonic) -> None:
        super().__init__(now)
        area = f"{_AREA}jwt."
        base = settings.required(f"{area}url").rstrip("/") + "/auth/"
        self._first = WebClient(_address(settings, f"{area}url", base + "authenticate"), timeout)
        self._again = WebClient(_address(settings, f"{area}url", base + "refreshToken"), timeout)
        self._login = {
            "username": settings.required(f"{area}username"),
            "password": settings.required(f"{area}password"),
        }
        self._minutes = settings.number(f"{area}token_expiration", 0, 0)
        refresh = settings.number(f"{area}refresh_token_expiration", 0, 0)
        wanted = {"token_expiry_in_minutes": self._minutes, "refresh_token_expiry_in_minutes": refresh}
        self._wanted = {name: minutes for name, minutes in wanted.items() if minutes}
        self._refresh = ""

    def _fetch(self) -> tuple[str, float | None]:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self._refresh:
            refresh, self._refresh = self._refresh, ""
            body = json.dumps({"jwt_refresh_token": refresh} | self._wanted).encode()
            answer = self._ask(self._again, "POST", headers, body)
            # A refresh token expires as well; then user and password are sent again.
            if answer.is_success:
                return self._taken(self._again, answer)
        body = json.dumps(self._login | self._wanted).encode()
        return self._taken(self._first, self._ask(self._first, "POST", headers, body))

    def _taken(self, client: WebClient, answer: Answer) -> tuple[str, float | None]:
        found = self._read(client, answer, "jwt")
        refresh = found.get("jwt_refresh_token")
        self._refresh = refresh if isinstance(refresh, str) else ""
        return found["jwt"], self._minutes * 60 or None


class OAuth2(Bearer):
    """The client credentials grant of OAuth 2 (RFC 6749, section 4.4)."""

    what = "oauth2"

    def __init__(self, settings: Settings, timeout: float, now: Clock = time.monotonic) -> None:
        super().__init__(now)
        area = f"{_AREA}oauth2."
        self._client = WebClient(_address(settings, f"{area}token_url", settings.required(f"{area}token_url")), timeout)
        user, secret = settings.required(f"{area}client_id"), settings.required(f"{area}client_secret")
        scope = settings.text(f"{area}scope")
        form = {"grant_type": "client_credentials"} | ({"scope": scope} if scope else {})
        form |= {name.removeprefix(_PARAMS): text for name, text in settings.given.items() if name.startswith(_PARAMS)}
        self._headers = {"Accept": "application/json"}
        methods = ("client_secret_basic", "client_secret_post")
        if settings.word(f"{area}client_auth_method", methods[0], methods) == methods[0]:
            login = f"{quote(user, safe='')}:{quote(secret, safe='')}".encode()
            self._headers["Authorization"] = f"Basic {base64.b64encode(login).decode()}"
        else:
            form |= {"client_id": user, "client_secret": secret}
        self._form = urlencode(form)
        self._method = settings.word(f"{area}token_url.http_method", "post", ("post", "get")).upper()

    def _fetch(self) -> tuple[str, float | None]:
        if self._method == "GET":
            answer = self._ask(self._client, "GET", self._headers, b"", self._form)
        else:
            headers = self._headers | {"Content-Type": "application/x-www-form-urlencoded"}
            answer = self._ask(self._client, "POST", headers, self._form.encode())
        found = self._read(self._client, answer, "access_token")
        lasts = found.get("expires_in")
        return found["access_token"], float(lasts) if isinstance(lasts, int | float) and lasts > 0 else None


def authentication(settings: Settings, timeout: float) -> Authentication:
    """Return the provider for `authentication.type`. Raises SinkError if options of another type are given."""
    kinds = {"jwt": "jwt.", "oauth2": "oauth2.", "standard-webhooks": "webhook."}
    kind = settings.word(f"{_AREA}type", "none", ("none", *kinds)) if settings.text(f"{_AREA}type") else "none"
    for name in settings.given:
        for other, area in kinds.items():
            if other != kind and name.startswith(_AREA + area):
                raise settings.wrong(name, f"needs debezium.sink.http.{_AREA}type = {other}")
    if kind == "jwt":
        return Jwt(settings, timeout)
    if kind == "oauth2":
        return OAuth2(settings, timeout)
    return Webhooks(settings) if kind == "standard-webhooks" else NoAuthentication()


def _address(settings: Settings, option: str, url: str) -> Address:
    try:
        return Address.of(url)
    except ValueError as fault:
        raise settings.wrong(option, str(fault)) from None


def _is_printable(token: str) -> bool:
    return token.isascii() and token.isprintable() and bool(token)
