"""/healthz, /readyz, /metrics and /v1/stats: what an operator sees.

Must not know: transports of answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import Response

from pagurid.server.http_errors import JsonResponse

if TYPE_CHECKING:
    from starlette.requests import Request

    from pagurid.server.serving import Serving

__all__ = ["Observability"]

FAILED_STEPS_UNHEALTHY = 3


class Observability:
    """The endpoints."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving

    async def health(self, _request: Request) -> JsonResponse:
        """200 while the engine can answer; 503 when it is dead or fails step after step, and why."""
        health = self._serving.llm.health()
        failing = health.consecutive_failed_steps >= FAILED_STEPS_UNHEALTHY
        status = "dead" if not health.alive else "failing" if failing else "ok"
        body = {
            "status": status,
            "last_error": health.last_error,
            "consecutive_failed_steps": health.consecutive_failed_steps,
        }
        return JsonResponse(body, status_code=200 if status == "ok" else 503)

    async def ready(self, _request: Request) -> JsonResponse:
        """200 while new requests are taken."""
        draining = self._serving.draining
        alive = self._serving.llm.health().alive
        status = "draining" if draining else "ready" if alive else "dead"
        return JsonResponse({"status": status}, status_code=200 if status == "ready" else 503)

    async def metrics(self, _request: Request) -> Response:
        """Prometheus."""
        return Response(
            self._serving.figures.prometheus(), media_type="text/plain; version=0.0.4; charset=utf-8"
        )

    async def stats(self, _request: Request) -> JsonResponse:
        """The server's figures as JSON."""
        return JsonResponse(self._serving.figures.stats())
