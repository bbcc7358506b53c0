"""What both OpenAI routes answer with: usage, our figures, and SSE framing.

Must not know: the engine, bodies.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import orjson
from starlette.responses import StreamingResponse

from pagurid.errors import InternalError, PaguridError
from pagurid.server.figures import cost_of, timing_of
from pagurid.server.http_errors import error_body

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.types import Receive, Scope, Send

    from pagurid.server.openai_api.choices import Choices, Totals

__all__ = ["SseResponse", "figures_field", "usage_field"]

log = logging.getLogger("pagurid.server")


def usage_field(totals: Totals) -> dict[str, Any]:
    """`usage`, as the OpenAI API has it."""
    return {
        "prompt_tokens": totals.prompt_tokens,
        "completion_tokens": totals.completion_tokens,
        "total_tokens": totals.prompt_tokens + totals.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": totals.cached_tokens},
    }


def figures_field(totals: Totals) -> dict[str, Any]:
    """`pagurid`: one entry of timing and cost per prompt, in the order in which they ended."""
    requests = [{"timing": timing_of(metrics), **cost_of(metrics)} for metrics in totals.metrics]
    return requests[0] if len(requests) == 1 else {"requests": requests}


class SseResponse(StreamingResponse):
    """A stream of chunks; however it ends, also before its first chunk, its generations end with it."""

    def __init__(self, choices: Choices, chunks: AsyncIterator[dict[str, Any]]) -> None:
        super().__init__(_sse(chunks), media_type="text/event-stream")
        self._choices = choices

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI entry."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._choices.close()


async def _sse(chunks: AsyncIterator[dict[str, Any]]) -> AsyncIterator[bytes]:
    """Server-sent events, ended by `[DONE]`; an error in the middle is an event of its own."""
    try:
        async for chunk in chunks:
            yield b"data: " + orjson.dumps(chunk) + b"\n\n"
    except PaguridError as error:
        yield b"data: " + orjson.dumps(error_body(error)) + b"\n\n"
    except Exception:
        log.exception("a stream broke")
        yield b"data: " + orjson.dumps(error_body(InternalError("the stream broke"))) + b"\n\n"
    yield b"data: [DONE]\n\n"
