"""`AsyncLLM`: a model inside an event loop.

Owns: the engine's thread, the running generations, and their wake-up: once per step for all, by
`call_soon_threadsafe`. Nothing is buffered here: a reader takes from the core what has come since its last
look, so a slow one gets fewer, larger deltas.
Must not know: transports.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from pagurid._core import SamplingParams
from pagurid.config import engine_config
from pagurid.engine import Engine, EngineHealth, EngineThread
from pagurid.errors import InternalError, Overloaded
from pagurid.request_options import RequestOptions

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from types import TracebackType

    from pagurid._core import OutputDelta, RequestProgress, Scheduler, SchedulerStats
    from pagurid.config import EngineConfig
    from pagurid.engine import MemoryUse, Prompt
    from pagurid.models import ModelConfig
    from pagurid.tokenizer import Tokenizer

__all__ = ["AsyncLLM", "Generation"]


class Generation:
    """One running request: an async iterator of `OutputDelta`, ending after the one that carries `metrics`.

    Each turn gives what every sequence has gained since the last, one delta per sequence.
    """

    def __init__(
        self, scheduler: Scheduler, request_id: int, prompt_token_ids: list[int], max_tokens: int
    ) -> None:
        self._scheduler = scheduler
        self.request_id = request_id
        self.prompt_token_ids = prompt_token_ids
        self.max_tokens = max_tokens
        """The most tokens each answer can get."""
        self._taken: deque[OutputDelta] = deque()
        self._news = asyncio.Event()
        self._ended = False
        self._failure: str | None = None

    @property
    def prompt_tokens(self) -> int:
        """Length of the prompt."""
        return len(self.prompt_token_ids)

    def cancel(self) -> None:
        """Ends the request; its iterator still gives the end, with finish_reason "cancelled". Idempotent."""
        if not self._ended:
            self._scheduler.cancel(self.request_id)

    def close(self) -> None:
        """Ends the request and the iterator: nobody wants the rest. Idempotent."""
        if not self._ended:
            self._ended = True
            self._scheduler.release(self.request_id)
        self._taken.clear()
        self._news.set()

    def progress(self) -> RequestProgress | None:
        """Where the request is: its place in the queue, how much of its prompt is computed."""
        return None if self._ended else self._scheduler.progress(self.request_id)

    def __aiter__(self) -> Generation:
        return self

    async def __anext__(self) -> OutputDelta:
        """Raises InternalError if the engine has died."""
        while not self._taken:
            if self._ended:
                raise StopAsyncIteration
            # Cleared before the look: news that comes during it is seen at the next turn.
            self._news.clear()
            self._taken.extend(self._scheduler.take_output(self.request_id))
            if self._taken:
                break
            if self._failure is not None:
                self.close()
                raise InternalError(self._failure)
            await self._news.wait()
        delta = self._taken.popleft()
        if delta.metrics is not None:
            self._ended = True
        return delta

    def _wake(self, failure: str | None = None) -> None:
        self._failure = failure
        self._news.set()

    def __del__(self) -> None:
        # An iterator left in the middle and forgotten must not go on generating.
        if not self._ended:
            self._scheduler.release(self.request_id)


class AsyncLLM:
    """Loads a model and serves it from a thread of its own. Used within one event loop.

    async with AsyncLLM("smollm2") as llm:
        async for delta in llm.generate("Once upon a time", SamplingParams(max_tokens=32)):
            print(delta.text, end="")
    """

    def __init__(self, config: EngineConfig | str | None = None, **options: Any) -> None:
        self.config = engine_config(config, options)
        self._engine = Engine(self.config)
        # Weak: a generation that nobody holds any more ends itself.
        self._generations: WeakValueDictionary[int, Generation] = WeakValueDictionary()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._drain_is_due = False
        self._closed = False
        self._thread = EngineThread(self._engine, self._on_news)

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's."""
        return self._engine.tokenizer

    @property
    def model_config(self) -> ModelConfig:
        """The model's."""
        return self._engine.model_config

    @property
    def served_model_name(self) -> str:
        """What clients call the model."""
        return self._engine.served_model_name

    @property
    def max_model_len(self) -> int:
        """The most tokens of prompt and answer together."""
        return self._engine.max_model_len

    async def submit(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        options: RequestOptions = RequestOptions(),  # noqa: B008 (frozen)
    ) -> Generation:
        """Tokenises off the event loop and queues the request.

        Raises InvalidRequest, ContextLengthExceeded, QueueFull, or Overloaded when the engine has stopped.
        """
        arrived_at = time.monotonic()
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            # A wake-up that the last loop did not live to see must not be waited for.
            self._loop, self._drain_is_due = loop, False
        params = params if params is not None else SamplingParams()
        prompt_token_ids = await asyncio.to_thread(self._engine.encode, prompt)
        self._check_alive()
        scheduler = self._engine.scheduler
        request_id = scheduler.submit(
            prompt_token_ids,
            params,
            priority=options.priority,
            tenant=options.tenant,
            cache_salt=options.cache_salt,
            age_ms=(time.monotonic() - arrived_at) * 1000,
        )
        max_tokens = scheduler.max_tokens_for(len(prompt_token_ids), params)
        generation = Generation(scheduler, request_id, prompt_token_ids, max_tokens)
        self._generations[request_id] = generation
        return generation

    async def generate(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        options: RequestOptions = RequestOptions(),  # noqa: B008 (frozen)
    ) -> AsyncGenerator[OutputDelta]:
        """Submits and gives the deltas. Leaving the iterator cancels the request."""
        generation = await self.submit(prompt, params, options)
        try:
            async for delta in generation:
                yield delta
        finally:
            generation.close()

    def stats(self) -> SchedulerStats:
        """Counters and gauges of the core, as one consistent picture."""
        return self._engine.scheduler.stats()

    def memory(self) -> MemoryUse:
        """What the engine's memory goes to, and the process's peak."""
        return self._engine.memory()

    def health(self) -> EngineHealth:
        """Whether the engine runs, and what went wrong last."""
        return self._thread.health()

    def check_invariants(self, *, idle: bool = False) -> None:
        """Raises InternalError naming what does not hold; `idle`: also that nothing is held."""
        self._engine.scheduler.check_invariants(idle=idle)

    async def close(self) -> None:
        """Ends every request and the engine's thread. Idempotent."""
        if self._closed:
            return
        self._closed = True
        self._engine.scheduler.close()
        for generation in list(self._generations.values()):
            generation.close()
        await asyncio.to_thread(self._thread.stop)

    async def __aenter__(self) -> AsyncLLM:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    def _check_alive(self) -> None:
        if self._thread.death is not None:
            raise Overloaded(self._thread.death)
        if self._closed:
            raise Overloaded("the engine is closed")

    def _on_news(self) -> None:
        """In the engine's thread: at most one wake-up is under way at a time."""
        loop = self._loop
        if loop is None or self._drain_is_due:
            return
        self._drain_is_due = True
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to tell
            loop.call_soon_threadsafe(self._drain)

    def _drain(self) -> None:
        """In the event loop: wakes those who have something to take."""
        # Lowered before the look, so that outputs which come during it bring a wake-up of their own.
        self._drain_is_due = False
        for request_id in self._engine.scheduler.take_ready():
            generation = self._generations.get(request_id)
            if generation is not None:
                generation._wake()
        failure = self._thread.death
        if failure is not None:
            for generation in list(self._generations.values()):
                generation._wake(failure)
