"""POST /v1/chat/completions."""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING, Any

from pagurid._core import SamplingParams
from pagurid.server.access import bearer_token
from pagurid.server.http_errors import JsonResponse
from pagurid.server.json_decoding import decode_json
from pagurid.server.openai_api.answers import SseResponse, figures_field, usage_field
from pagurid.server.openai_api.bodies import ChatCompletionBody
from pagurid.server.openai_api.body_reading import read_body, unless_client_leaves
from pagurid.server.openai_api.choices import Choices
from pagurid.server.openai_api.logprobs import chat_logprobs
from pagurid.server.sampling_fields import sampling_arguments

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request
    from starlette.responses import Response

    from pagurid.server.serving import Serving

__all__ = ["ChatCompletions"]


class ChatCompletions:
    """The endpoint."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving

    async def __call__(self, request: Request) -> Response:
        """Checks everything, then answers whole or as a stream."""
        serving = self._serving
        body = decode_json(await read_body(request, serving.settings.max_body_bytes), ChatCompletionBody)
        body.check()
        model = serving.check_model(body.model)
        params = SamplingParams(**sampling_arguments(body, logprobs=body.wanted_logprobs))
        options = serving.request_options(body, bearer_token(request.headers))
        choices = await unless_client_leaves(
            request, Choices.start(serving, [body.messages], params, options)
        )
        head: dict[str, Any] = {
            "id": f"chatcmpl-{secrets.token_hex(12)}",
            "created": int(time.time()),
            "model": model,
        }
        if body.stream:
            head["object"] = "chat.completion.chunk"
            return SseResponse(choices, self._chunks(choices, body, params.n, head))
        try:
            return await unless_client_leaves(request, self._answer(choices, body, head))
        finally:
            choices.close()

    async def _answer(self, choices: Choices, body: ChatCompletionBody, head: dict[str, Any]) -> JsonResponse:
        # Only when asked for: it is made at first use, and takes a while.
        token_bytes = self._serving.token_bytes if body.logprobs else []
        answers = [
            {
                "index": index,
                "message": {"role": "assistant", "content": choice.text, "refusal": None},
                "finish_reason": choice.finish_reason,
                "logprobs": chat_logprobs(choice.logprobs, token_bytes) if body.logprobs else None,
            }
            for index, choice in enumerate(await choices.whole())
        ]
        answer = {
            **head,
            "object": "chat.completion",
            "choices": answers,
            "usage": usage_field(choices.totals),
            "pagurid": figures_field(choices.totals),
        }
        return JsonResponse(answer)

    async def _chunks(
        self, choices: Choices, body: ChatCompletionBody, n: int, head: dict[str, Any]
    ) -> AsyncIterator[dict[str, Any]]:
        def chunk(
            index: int, delta: dict[str, Any], logprobs: Any = None, reason: str | None = None
        ) -> dict[str, Any]:
            choice = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": reason}
            return {**head, "choices": [choice], **({"usage": None} if body.include_usage else {})}

        for index in range(n):
            yield chunk(index, {"role": "assistant", "content": ""})
        async for index, delta in choices:
            logprobs = (
                chat_logprobs(delta.logprobs, self._serving.token_bytes)
                if delta.logprobs is not None
                else None
            )
            if delta.text or delta.logprobs:
                yield chunk(index, {"content": delta.text}, logprobs)
            if delta.finish_reason is not None:
                last = chunk(index, {}, None, delta.finish_reason)
                if delta.metrics is not None:
                    last["pagurid"] = figures_field(choices.totals)
                yield last
        if body.include_usage:
            yield {**head, "choices": [], "usage": usage_field(choices.totals)}
