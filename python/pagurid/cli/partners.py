"""Who answers in `pagurid chat`: a model in this process, or a server.

Must not know: the terminal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Generator
    from types import TracebackType

    from pagurid.client import Client
    from pagurid.engine import Engine

__all__ = ["Partner", "engine_partner", "server_partner"]


class Partner(Protocol):
    """Answers conversations, piece by piece."""

    figures: str | None
    """Of the last whole answer, in one line."""

    def answer(self, messages: list[dict[str, Any]], sampling: dict[str, Any]) -> Generator[str]:
        """The answer's text; closing the generator stops it."""

    def __enter__(self) -> Partner: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...


def engine_partner(model: str, **options: Any) -> Partner:
    """Loads the model here. Raises ConfigError or ModelLoadError."""
    from pagurid.config import EngineConfig
    from pagurid.engine import Engine

    return _EnginePartner(Engine(EngineConfig(model=model, max_num_seqs=1, **options)))


def server_partner(url: str, token: str | None) -> Partner:
    """Connects. Raises ConfigError."""
    from pagurid.client import Client

    return _ServerPartner(Client(url, token=token))


class _EnginePartner:
    figures: str | None = None

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def answer(self, messages: list[dict[str, Any]], sampling: dict[str, Any]) -> Generator[str]:
        from pagurid._core import SamplingParams
        from pagurid.errors import InternalError

        engine, scheduler = self._engine, self._engine.scheduler
        request_id = scheduler.submit(engine.encode(messages), SamplingParams(**sampling))
        ended = False
        try:
            while not ended:
                engine.step()
                for delta in scheduler.take_output(request_id):
                    if delta.text:
                        yield delta.text
                    if delta.error is not None:
                        raise InternalError(delta.error)
                    if delta.metrics is not None:
                        ended = True
                        self.figures = _figures(
                            delta.metrics.ttft_ms,
                            delta.metrics.tokens_per_second,
                            delta.metrics.prompt_tokens,
                            delta.metrics.cached_tokens,
                            delta.metrics.completion_tokens,
                        )
        finally:
            if not ended:
                scheduler.release(request_id)
                engine.step()

    def __enter__(self) -> _EnginePartner:
        return self

    def __exit__(self, *_: object) -> None:
        return


class _ServerPartner:
    figures: str | None = None

    def __init__(self, client: Client) -> None:
        self._client = client

    def answer(self, messages: list[dict[str, Any]], sampling: dict[str, Any]) -> Generator[str]:
        events = self._client.generate(messages, sampling)
        for event in events:
            if event["type"] == "delta":
                yield event["text"]
            elif event["type"] == "done":
                usage, timing = event["usage"], event["timing"]
                self.figures = _figures(
                    timing.get("ttft_ms"),
                    timing.get("tokens_per_second"),
                    usage["prompt_tokens"],
                    usage["cached_tokens"],
                    usage["completion_tokens"],
                )

    def __enter__(self) -> _ServerPartner:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()


def _figures(ttft_ms: float | None, rate: float | None, prompt: int, cached: int, completion: int) -> str:
    parts = [f"{prompt} prompt tokens ({cached} cached)", f"{completion} tokens"]
    if ttft_ms is not None:
        parts.append(f"first after {ttft_ms:.0f} ms")
    if rate is not None:
        parts.append(f"{rate:.1f} tokens/s")
    return " · ".join(parts)
