"""What all routes share while the server lives: the engine, its running generations, the server's figures.

Owns: every generation from submit to its end: whatever happens to a client, its generation is cancelled and
counted exactly once. Refuses new work while the server drains.
Must not know: HTTP, WebSockets, formats.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from functools import cached_property
from typing import TYPE_CHECKING

from pagurid import _core
from pagurid.errors import InvalidRequest, Overloaded
from pagurid.request_options import RequestOptions
from pagurid.server.access import KeyCheck
from pagurid.server.request_checks import check_model
from pagurid.server.server_figures import ServerFigures

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from pagurid._core import OutputDelta, SamplingParams
    from pagurid.async_llm import AsyncLLM, Generation
    from pagurid.engine import Prompt
    from pagurid.server.sampling_fields import RequestFields
    from pagurid.server.settings import ServerSettings

__all__ = ["Serving"]


class Serving:
    """One per server. Lives on the event loop's thread."""

    def __init__(self, llm: AsyncLLM, settings: ServerSettings) -> None:
        self.llm = llm
        self.settings = settings
        self.epoch = secrets.token_hex(8)
        """One life of the server."""
        self.version = _core.__version__
        self.check_key = KeyCheck(settings.api_keys)
        self.figures = ServerFigures(llm)
        self.draining = False
        """True from the first Ctrl-C on: nothing new is taken."""
        self._live: set[Generation] = set()
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def models(self) -> dict[str, int]:
        """Served model → context length in tokens."""
        return {self.llm.served_model_name: self.llm.max_model_len}

    @cached_property
    def token_bytes(self) -> list[bytes]:
        """Token id → bytes, for log-probabilities."""
        return self.llm.tokenizer.vocabulary_data().token_bytes

    def check_model(self, model: str | None) -> str:
        """The served name for what a client asked for; raises ModelNotFound."""
        check_model(model, self.models)
        return self.llm.served_model_name

    def request_options(self, fields: RequestFields, token: str | None) -> RequestOptions:
        """What the scheduler is told of a request; `token` is the key that it came with.

        The tenant is the key's holder if there are several keys, else the `user` that the request names.
        Raises InvalidRequest for a priority that would not count.
        """
        policy = self.llm.config.scheduling_policy
        if fields.priority and policy != "priority":
            raise InvalidRequest(
                f"priority: expected 0, got {fields.priority}: this server's --scheduling-policy is {policy}",
                param="priority",
            )
        if fields.cache_salt == "":
            raise InvalidRequest("cache_salt: expected some text, got none", param="cache_salt")
        return RequestOptions(
            priority=fields.priority or 0,
            tenant=self.check_key.tenant_of(token) or fields.user or None,
            cache_salt=fields.cache_salt,
        )

    async def start(self, prompt: Prompt, params: SamplingParams, options: RequestOptions) -> Generation:
        """Queues a request. Raises what `AsyncLLM.submit` raises, and Overloaded while draining."""
        if self.draining:
            raise Overloaded("the server is shutting down", retry_after_ms=5000)
        generation = await self.llm.submit(prompt, params, options)
        self._live.add(generation)
        self._idle.clear()
        return generation

    async def deltas(self, generation: Generation) -> AsyncGenerator[OutputDelta]:
        """The generation's deltas to its end. Leaving early cancels it.

        Raises Overloaded if the engine was closed before the end: a part must not pass for the whole.
        """
        is_whole = False
        try:
            async for delta in generation:
                self.figures.observe(delta)
                is_whole = delta.metrics is not None
                yield delta
            if not is_whole:
                raise Overloaded("the server is shutting down", retry_after_ms=5000)
        finally:
            self.drop(generation)

    def drop(self, generation: Generation) -> None:
        """Ends the server's interest in a generation; ends it if it still runs."""
        self._live.discard(generation)
        self.figures.forget(generation.request_id)
        generation.close()
        if not self._live:
            self._idle.set()

    async def drain(self, grace_s: float) -> None:
        """Waits for what runs, at most `grace_s`; then cancels the rest."""
        try:
            async with asyncio.timeout(grace_s):
                await self._idle.wait()
        except TimeoutError:
            for generation in self._live:
                generation.cancel()
            # A cancelled generation ends within a step; its reader then says so to its client.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1):
                    await self._idle.wait()
