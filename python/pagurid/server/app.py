"""`create_app`: every route, put together.

Owns: the routing table, the order of the middleware, the chat UI's files.
Must not know: how any route works.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles

from pagurid.errors import InternalError, PaguridError
from pagurid.server.access import AccessMiddleware
from pagurid.server.http_errors import error_response, plain_error
from pagurid.server.observability import Observability
from pagurid.server.openai_api.body_reading import ClientGoneError
from pagurid.server.openai_api.chat import ChatCompletions
from pagurid.server.openai_api.completions import Completions
from pagurid.server.openai_api.models import Models
from pagurid.server.serving import Serving
from pagurid.server.settings import ServerSettings
from pagurid.server.websocket import WebSocketRoute as WebSocketEndpoint

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import Request
    from starlette.types import Scope

    from pagurid.async_llm import AsyncLLM

__all__ = ["create_app"]

_NOT_POST = ["GET", "HEAD", "PUT", "PATCH", "DELETE"]

STATIC = Path(__file__).parent / "static"

log = logging.getLogger("pagurid.server")


def create_app(llm: AsyncLLM, settings: ServerSettings | None = None) -> Starlette:
    """The ASGI application around a running engine.

    `app.state.serving` and `app.state.websocket` are there to end it well.
    """
    settings = settings or ServerSettings()
    serving = Serving(llm, settings)
    observability = Observability(serving)
    models = Models(serving)
    websocket = WebSocketEndpoint(serving)
    app = Starlette(
        routes=[
            WebSocketRoute("/v1/ws", websocket.__call__),
            *_post("/v1/chat/completions", ChatCompletions(serving).__call__),
            *_post("/v1/completions", Completions(serving).__call__),
            Route("/v1/models", models.list),
            Route("/v1/models/{id:path}", models.one),
            Route("/v1/stats", observability.stats),
            Route("/healthz", observability.health),
            Route("/readyz", observability.ready),
            Route("/metrics", observability.metrics),
            Mount("/", _ChatUi(directory=STATIC, html=True, check_dir=False)),
        ],
        middleware=[
            Middleware(AccessMiddleware, settings=settings, check_key=serving.check_key),
            # Without it a browser keeps the answers from the pages that `allowed_origins` lets in.
            Middleware(
                CORSMiddleware,
                allow_origins=[origin.rstrip("/") for origin in settings.allowed_origins],
                allow_methods=["GET", "POST"],
                allow_headers=["authorization", "content-type"],
            ),
        ],
        exception_handlers={
            PaguridError: _on_error,
            ClientGoneError: _on_client_gone,
            ClientDisconnect: _on_client_gone,
            404: _on_unknown_route,
            405: _on_wrong_method,
            Exception: _on_bug,
        },
    )
    app.state.serving = serving
    app.state.websocket = websocket
    return app


def _post(path: str, endpoint: Callable[[Request], Awaitable[Response]]) -> list[Route]:
    """A route for POST; other methods are told so, or the UI's files would be searched for them."""
    return [Route(path, endpoint, methods=["POST"]), Route(path, _on_wrong_method, methods=_NOT_POST)]


class _ChatUi(StaticFiles):
    """The built chat UI; hashed assets never change, the page itself is always asked for anew."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        """A file, or a word on how to build it."""
        if path == "." and not (STATIC / "index.html").is_file():
            return PlainTextResponse(
                "The chat UI is not built. Run `make web` in the checkout.", status_code=503
            )
        response = await super().get_response(path, scope)
        immutable = path.startswith("assets/")
        response.headers["cache-control"] = "public, max-age=31536000, immutable" if immutable else "no-cache"
        return response


async def _on_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, PaguridError)
    return error_response(error)


async def _on_client_gone(_request: Request, _error: Exception) -> Response:
    return Response(status_code=499)


async def _on_unknown_route(request: Request, _error: Exception) -> Response:
    return plain_error(404, "not_found", f"there is no {request.url.path}")


async def _on_wrong_method(request: Request, _error: Exception | None = None) -> Response:
    return plain_error(405, "method_not_allowed", f"{request.url.path} does not take {request.method}")


async def _on_bug(_request: Request, error: Exception) -> Response:
    log.error("a route failed", exc_info=error)
    return error_response(InternalError("the server met a fault of its own; its log says more"))
