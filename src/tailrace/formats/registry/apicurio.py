"""Apicurio's own registry interface, versions 2 and 3, which has all ids that its converters write. Worker."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any

from tailrace.formats.registry.base import SECONDS, RegistryUnanswered, refused
from tailrace.formats.registry.options import Access, Registry

_VERSION_3 = {
    "RETURN_OR_UPDATE": "FIND_OR_CREATE_VERSION",
    "UPDATE": "CREATE_VERSION",
    "RETURN": "FIND_OR_CREATE_VERSION",
}


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects. The login and other configured headers go only to the registry's own server."""

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        found = super().redirect_request(req, fp, code, msg, headers, newurl)
        if found is not None and _server(newurl) != _server(req.full_url):
            found.headers.clear()
        return found


class Client:
    """See registry.base.Client."""

    def __init__(self, access: Access) -> None:
        self._url = access.url
        self._is_third = access.url.endswith("/v3")
        self._headers = dict(access.headers)
        if access.user:
            login = base64.b64encode(f"{access.user}:{access.password}".encode()).decode()
            self._headers["Authorization"] = f"Basic {login}"
        handlers: list[urllib.request.BaseHandler] = [_Redirects()]
        if access.url.startswith("https"):
            context = ssl.create_default_context(cafile=access.trusted or None)
            if access.certificate:
                context.load_cert_chain(access.certificate, access.key, access.key_password or None)
            handlers.append(urllib.request.HTTPSHandler(context=context))
        self._opener = urllib.request.build_opener(*handlers)

    def register(self, registry: Registry, subject: str, schema: str, kind: str) -> int:
        exists = registry.if_exists or "RETURN_OR_UPDATE"
        if self._is_third:
            content = {"content": schema, "contentType": "application/json"}
            body = {"artifactId": subject, "artifactType": kind, "firstVersion": {"content": content}}
            path = f"{_group(registry)}?ifExists={_VERSION_3.get(exists, exists)}"
            found = self._asked(registry, subject, path, json.dumps(body))["version"]
        else:
            headers = {"X-Registry-ArtifactId": subject, "X-Registry-ArtifactType": kind}
            found = self._asked(registry, subject, f"{_group(registry)}?ifExists={exists}", schema, headers)
        return _id(registry, found)

    def find(self, registry: Registry, subject: str, schema: str, kind: str) -> int:
        quoted = urllib.parse.quote(subject, safe="")
        if not self._is_third:
            return _id(registry, self._asked(registry, subject, f"{_group(registry)}/{quoted}/meta", schema))
        query = urllib.parse.urlencode(
            {"artifactId": subject, "groupId": registry.group, "artifactType": kind, "orderby": "globalId"}
        )
        found = self._asked(registry, subject, f"/search/versions?{query}", schema)["versions"]
        if not found:
            raise refused(registry, subject, 404, "no version has this content")
        return _id(registry, found[0])

    def latest(self, registry: Registry, subject: str) -> tuple[int, str]:
        place = f"{_group(registry)}/{urllib.parse.quote(subject, safe='')}"
        if self._is_third:
            found = self._asked(registry, subject, f"{place}/versions/branch=latest")
            text = self._text(registry, subject, f"{place}/versions/branch=latest/content")
        else:
            found = self._asked(registry, subject, f"{place}/meta")
            text = self._text(registry, subject, place)
        return _id(registry, found), text

    def _asked(
        self,
        registry: Registry,
        subject: str,
        path: str,
        body: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        return json.loads(self._text(registry, subject, path, body, headers))

    def _text(
        self,
        registry: Registry,
        subject: str,
        path: str,
        body: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> str:
        sent = {"Content-Type": "application/json", **self._headers, **(headers or {})}
        request = urllib.request.Request(self._url + path, None if body is None else body.encode(), sent)
        try:
            with self._opener.open(request, timeout=SECONDS) as answer:
                return str(answer.read().decode())
        except urllib.error.HTTPError as answer:
            if answer.code >= 500 or answer.code == 429:
                raise RegistryUnanswered(f"HTTP {answer.code}") from None
            raise refused(registry, subject, answer.code, _said(answer)) from None
        except urllib.error.URLError as error:
            raise RegistryUnanswered(str(error.reason)) from None
        except OSError as error:
            raise RegistryUnanswered(str(error)) from None
        except http.client.HTTPException as error:
            raise RegistryUnanswered(f"its answer is not HTTP ({type(error).__name__})") from None


def _server(url: str) -> tuple[str, str]:
    parts = urllib.parse.urlsplit(url)
    return parts.scheme, parts.netloc


def _group(registry: Registry) -> str:
    return f"/groups/{urllib.parse.quote(registry.group, safe='')}/artifacts"


def _id(registry: Registry, found: Mapping[str, Any]) -> int:
    return int(found["globalId" if registry.is_global else "contentId"])


def _said(answer: urllib.error.HTTPError) -> str:
    text = answer.read().decode(errors="replace")
    try:
        fields = json.loads(text)
    except ValueError:
        return text
    return str(fields.get("message") or fields.get("title") or text) if isinstance(fields, dict) else text
