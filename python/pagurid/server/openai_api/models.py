"""GET /v1/models and /v1/models/{id}."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from pagurid.server.http_errors import JsonResponse

if TYPE_CHECKING:
    from starlette.requests import Request

    from pagurid.server.serving import Serving

__all__ = ["Models"]


class Models:
    """The endpoints."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving
        self._created = int(time.time())

    def _entry(self, name: str, context_length: int) -> dict[str, Any]:
        return {
            "id": name,
            "object": "model",
            "created": self._created,
            "owned_by": "pagurid",
            "max_model_len": context_length,
        }

    async def list(self, _request: Request) -> JsonResponse:
        """All served models."""
        return JsonResponse(
            {"object": "list", "data": [self._entry(*item) for item in self._serving.models.items()]}
        )

    async def one(self, request: Request) -> JsonResponse:
        """One of them; raises ModelNotFound."""
        name = self._serving.check_model(request.path_params["id"])
        return JsonResponse(self._entry(name, self._serving.models[name]))
