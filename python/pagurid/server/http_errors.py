"""Errors as the OpenAI API words them, with our codes.

Must not know: the engine, what went wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson
from starlette.responses import Response

if TYPE_CHECKING:
    from pagurid.errors import PaguridError

__all__ = ["JsonResponse", "error_body", "error_response", "plain_error"]


class JsonResponse(Response):
    """JSON by orjson."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """Encodes the body."""
        return orjson.dumps(content)


def _type_of(status: int) -> str:
    if status == 401:
        return "authentication_error"
    if status == 403:
        return "permission_error"
    if status == 429:
        return "rate_limit_error"
    return "invalid_request_error" if status < 500 else "server_error"


def _body(status: int, code: str, message: str, **more: Any) -> dict[str, Any]:
    return {"error": {"message": message, "type": _type_of(status), "param": None, "code": code, **more}}


def error_body(error: PaguridError) -> dict[str, Any]:
    """`{"error": {message, type, param, code, …}}`."""
    more: dict[str, Any] = {"param": error.param}
    if error.retry_after_ms is not None:
        more["retry_after_ms"] = error.retry_after_ms
    if error.details:
        more["details"] = error.details
    return _body(error.http_status, error.code, error.message, **more)


def error_response(error: PaguridError) -> JsonResponse:
    """The HTTP answer for an error."""
    headers = {}
    if error.retry_after_ms is not None:
        headers["retry-after"] = str(max(1, -(-error.retry_after_ms // 1000)))
    if error.http_status == 401:
        headers["www-authenticate"] = "Bearer"
    return JsonResponse(error_body(error), status_code=error.http_status, headers=headers)


def plain_error(status: int, code: str, message: str) -> JsonResponse:
    """An error outside our table, such as an unknown route."""
    return JsonResponse(_body(status, code, message), status_code=status)
