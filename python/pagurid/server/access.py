"""Who may speak to this server: Host and Origin against the allow-list, then the API key.

Owns: the protection of a loopback server from web pages (DNS rebinding, cross-site sockets) and the
constant-time comparison of keys. The key is never logged, never taken from the URL.
Must not know: the engine, what the routes do.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.datastructures import Headers

from pagurid.errors import Forbidden, PaguridError, Unauthorized
from pagurid.server.http_errors import error_response

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from pagurid.server.settings import ServerSettings

__all__ = ["AccessMiddleware", "KeyCheck", "bearer_token"]

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
# Without a page's script, styles and data from anywhere but here, text of a model cannot become a program.
_SECURITY_HEADERS = {
    "content-security-policy": (
        "default-src 'self'; script-src 'self'; style-src 'self'; "
        "img-src 'self'; connect-src 'self'; object-src 'none'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
}


class KeyCheck:
    """Is this one of the keys? Always in the same time."""

    def __init__(self, api_keys: tuple[str, ...]) -> None:
        self._keys = [key.encode() for key in api_keys]

    def __call__(self, token: str | None) -> bool:
        """True also when no key is asked for."""
        given = (token or "").encode()
        # All are compared, so that the time does not tell which came near.
        matches = [hmac.compare_digest(given, key) for key in self._keys]
        return not self._keys or any(matches)

    def tenant_of(self, token: str | None) -> str | None:
        """A name for the key's holder that does not give the key away; None unless there are several keys."""
        if len(self._keys) < 2:
            return None
        return f"key-{hashlib.sha256((token or '').encode()).hexdigest()[:16]}"


def bearer_token(headers: Headers) -> str | None:
    """Of an `Authorization: Bearer` header."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def _host_name(host: str) -> str:
    """`Host` without its port, in lower case; IPv6 without brackets; nothing if it is none."""
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""


class AccessMiddleware:
    """Checks every HTTP request and WebSocket handshake before a route sees it."""

    def __init__(self, app: ASGIApp, *, settings: ServerSettings, check_key: KeyCheck) -> None:
        self._app = app
        self._check_key = check_key
        self._any_host = "*" in settings.allowed_hosts
        self._hosts = _LOOPBACK | {settings.host.lower()} | {host.lower() for host in settings.allowed_hosts}
        self._origins = {origin.rstrip("/").lower() for origin in settings.allowed_origins}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI entry."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        problem = self._problem(scope)
        if problem is not None:
            # Before accept, so a WebSocket handshake is refused with a plain HTTP status.
            await error_response(problem)(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                present = {name.lower() for name, _ in message.get("headers", [])}
                message["headers"] = [
                    *message.get("headers", []),
                    *(
                        (n.encode(), v.encode())
                        for n, v in _SECURITY_HEADERS.items()
                        if n.encode() not in present
                    ),
                ]
            await send(message)

        await self._app(scope, receive, send_with_headers if scope["type"] == "http" else send)

    def _problem(self, scope: Scope) -> PaguridError | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if not self._any_host and _host_name(host) not in self._hosts:
            return Forbidden(
                f"host {host[:100]!r} is not served here; allow it with --allowed-hosts", param="host"
            )
        origin = headers.get("origin")
        if origin is not None and not self._origin_allowed(origin.lower(), host.lower()):
            return Forbidden(
                f"origin {origin[:100]!r} may not use this server; allow it with --allowed-origins"
            )
        needs_key = (
            scope["type"] == "http" and scope["path"].startswith("/v1/") and scope["method"] != "OPTIONS"
        )
        if needs_key and not self._check_key(bearer_token(headers)):
            return Unauthorized("expected a valid key as `Authorization: Bearer`")
        return None

    def _origin_allowed(self, origin: str, host: str) -> bool:
        try:
            place = urlsplit(origin).netloc
        except ValueError:
            return False
        return (bool(place) and place == host) or origin in self._origins
