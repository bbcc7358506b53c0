"""POST /v1/completions."""

from __future__ import annotations

import asyncio
import secrets
import time
from typing import TYPE_CHECKING, Any

from pagurid._core import SamplingParams
from pagurid.server.access import bearer_token
from pagurid.server.http_errors import JsonResponse
from pagurid.server.json_decoding import decode_json
from pagurid.server.openai_api.answers import SseResponse, figures_field, usage_field
from pagurid.server.openai_api.bodies import CompletionBody
from pagurid.server.openai_api.body_reading import read_body, unless_client_leaves
from pagurid.server.openai_api.choices import Choices
from pagurid.server.openai_api.logprobs import completion_logprobs
from pagurid.server.sampling_fields import sampling_arguments

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request
    from starlette.responses import Response

    from pagurid.server.serving import Serving

__all__ = ["Completions"]


class Completions:
    """The endpoint."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving

    async def __call__(self, request: Request) -> Response:
        """Checks everything, then answers whole or as a stream."""
        serving = self._serving
        body = decode_json(await read_body(request, serving.settings.max_body_bytes), CompletionBody)
        body.check()
        model = serving.check_model(body.model)
        params = SamplingParams(**sampling_arguments(body, logprobs=body.logprobs))
        prompts = body.prompts()
        echoes = await self._echoes(prompts) if body.echo else [""] * len(prompts)
        options = serving.request_options(body, bearer_token(request.headers))
        choices = await unless_client_leaves(request, Choices.start(serving, prompts, params, options))
        head = {
            "id": f"cmpl-{secrets.token_hex(12)}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": model,
        }
        answer = _Answer(serving, choices, body, [echo for echo in echoes for _ in range(params.n)], head)
        if body.stream:
            return SseResponse(choices, answer.chunks())
        try:
            return await unless_client_leaves(request, answer.whole())
        finally:
            choices.close()

    async def _echoes(self, prompts: list[str | list[int]]) -> list[str]:
        decode = self._serving.llm.tokenizer.decode
        return [
            prompt if isinstance(prompt, str) else await asyncio.to_thread(decode, prompt)
            for prompt in prompts
        ]


class _Answer:
    """One request's choices on their way out."""

    def __init__(
        self,
        serving: Serving,
        choices: Choices,
        body: CompletionBody,
        echoes: list[str],
        head: dict[str, Any],
    ) -> None:
        self._serving = serving
        self._choices = choices
        self._body = body
        self._echoes = echoes
        self._head = head
        self._chars = [len(echo) for echo in echoes]

    def _logprobs(self, index: int, entries: list[Any]) -> dict[str, Any]:
        return completion_logprobs(entries, self._serving.token_bytes, text_offset=self._chars[index])

    async def whole(self) -> JsonResponse:
        """The answer at once."""
        wants_logprobs = self._body.logprobs is not None
        choices = [
            {
                "index": index,
                "text": self._echoes[index] + choice.text,
                "finish_reason": choice.finish_reason,
                "logprobs": self._logprobs(index, choice.logprobs) if wants_logprobs else None,
            }
            for index, choice in enumerate(await self._choices.whole())
        ]
        answer = {
            **self._head,
            "choices": choices,
            "usage": usage_field(self._choices.totals),
            "pagurid": figures_field(self._choices.totals),
        }
        return JsonResponse(answer)

    async def chunks(self) -> AsyncIterator[dict[str, Any]]:
        """The answer piece by piece."""
        no_usage = {"usage": None} if self._body.include_usage else {}
        for index, echo in enumerate(self._echoes):
            if echo:
                choice = {"index": index, "text": echo, "logprobs": None, "finish_reason": None}
                yield {**self._head, "choices": [choice], **no_usage}
        async for index, delta in self._choices:
            if not (delta.text or delta.logprobs or delta.finish_reason):
                continue
            logprobs = self._logprobs(index, delta.logprobs) if delta.logprobs else None
            self._chars[index] += len(delta.text)
            choice = {
                "index": index,
                "text": delta.text,
                "logprobs": logprobs,
                "finish_reason": delta.finish_reason,
            }
            chunk = {**self._head, "choices": [choice], **no_usage}
            if delta.metrics is not None:
                chunk["pagurid"] = figures_field(self._choices.totals)
            yield chunk
        if self._body.include_usage:
            yield {**self._head, "choices": [], "usage": usage_field(self._choices.totals)}
