"""Many generations of one HTTP request as one stream of numbered choices.

Owns: the numbering (prompt i, sequence j → choice i · n + j), taking turns, and that all end together: when
the client leaves or one fails, all are cancelled.
Must not know: HTTP, formats.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pagurid.errors import InternalError, Overloaded

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from pagurid._core import OutputDelta, RequestMetrics, SamplingParams, TokenLogprobs
    from pagurid.async_llm import Generation
    from pagurid.engine import Prompt
    from pagurid.request_options import RequestOptions
    from pagurid.server.serving import Serving

__all__ = ["Choice", "Choices", "Totals"]


@dataclass(slots=True)
class Totals:
    """The figures of a whole HTTP request."""

    metrics: list[RequestMetrics]

    @property
    def prompt_tokens(self) -> int:
        """Of all prompts."""
        return sum(metrics.prompt_tokens for metrics in self.metrics)

    @property
    def cached_tokens(self) -> int:
        """Of all prompts, found in the prefix cache."""
        return sum(metrics.cached_tokens for metrics in self.metrics)

    @property
    def completion_tokens(self) -> int:
        """Of all choices."""
        return sum(metrics.completion_tokens for metrics in self.metrics)


@dataclass(slots=True)
class Choice:
    """One whole answer."""

    text: str = ""
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    finish_reason: str | None = None


class Choices:
    """Async iterable of (choice index, delta)."""

    def __init__(self, serving: Serving, generations: Sequence[Generation], n: int) -> None:
        self._serving = serving
        self._generations = generations
        self._n = n
        self.totals = Totals([])

    @classmethod
    async def start(
        cls, serving: Serving, prompts: Sequence[Prompt], params: SamplingParams, options: RequestOptions
    ) -> Choices:
        """Queues every prompt, or none: if one is refused, those before it are cancelled."""
        generations: list[Generation] = []
        try:
            for prompt in prompts:
                generations.append(await serving.start(prompt, params, options))
        except BaseException:
            for generation in generations:
                serving.drop(generation)
            raise
        return cls(serving, generations, params.n)

    def close(self) -> None:
        """Ends what still runs. Idempotent."""
        for generation in self._generations:
            self._serving.drop(generation)

    async def whole(self) -> list[Choice]:
        """All answers at their end, in order. Raises as iterating does."""
        answers = [Choice() for _ in range(len(self._generations) * self._n)]
        async for index, delta in self:
            answer = answers[index]
            answer.text += delta.text
            answer.logprobs += delta.logprobs or []
            answer.finish_reason = delta.finish_reason or answer.finish_reason
        return answers

    async def __aiter__(self) -> AsyncGenerator[tuple[int, OutputDelta]]:
        """Raises InternalError or Overloaded if a generation ends otherwise than by itself."""
        streams = [self._serving.deltas(generation) for generation in self._generations]
        pending = {asyncio.ensure_future(anext(stream)): number for number, stream in enumerate(streams)}
        try:
            while pending:
                done, _ = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    number = pending.pop(task)
                    try:
                        delta = task.result()
                    except StopAsyncIteration:
                        continue
                    if delta.error is not None:
                        raise InternalError(delta.error)
                    if delta.finish_reason == "cancelled":
                        raise Overloaded("the server is shutting down", retry_after_ms=5000)
                    if delta.metrics is not None:
                        self.totals.metrics.append(delta.metrics)
                    pending[asyncio.ensure_future(anext(streams[number]))] = number
                    yield number * self._n + delta.index, delta
        finally:
            for task in pending:
                task.cancel()
            await asyncio.gather(*pending, return_exceptions=True)
            for stream in streams:
                await stream.aclose()
            self.close()
