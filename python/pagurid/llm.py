"""`LLM`: a model for scripts and notebooks. Many prompts in, all answers out, no event loop.

Owns: driving the engine in the caller's thread, and collecting answers in the order of the prompts.
Must not know: threads, transports.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from pagurid._core import SamplingParams
from pagurid.config import engine_config
from pagurid.engine import Engine
from pagurid.errors import InvalidRequest, QueueFull
from pagurid.outputs import CompletionOutput, RequestOutput

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pagurid._core import OutputDelta, SchedulerStats
    from pagurid.config import EngineConfig
    from pagurid.engine import Prompt
    from pagurid.tokenizer import Tokenizer

__all__ = ["LLM"]


class LLM:
    """Loads a model. Options are those of `EngineConfig`: `LLM("smollm2", max_model_len=2048)`.

    Raises ConfigError or ModelLoadError, in one line, if the model cannot be served.
    """

    def __init__(self, model: EngineConfig | str | None = None, **options: Any) -> None:
        self.config = engine_config(model, options)
        self._engine = Engine(self.config)

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's."""
        return self._engine.tokenizer

    def generate(
        self,
        prompts: str | Sequence[int] | Sequence[str] | Sequence[Sequence[int]],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        progress: bool | None = None,
    ) -> list[RequestOutput]:
        """Continues texts or token ids; one `RequestOutput` per prompt, in order.

        `params`: one for all, or one each. `progress`: a bar on stderr; by default on a terminal, when there
        is more than one prompt. Raises InvalidRequest or ContextLengthExceeded before anything is computed.
        """
        single = isinstance(prompts, str) or (bool(prompts) and isinstance(prompts[0], int))
        each = cast("Sequence[Prompt]", [prompts] if single else prompts)
        return self._run(each, params, progress)

    def chat(
        self,
        messages: Sequence[dict[str, Any]] | Sequence[Sequence[dict[str, Any]]],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        progress: bool | None = None,
    ) -> list[RequestOutput]:
        """Answers one conversation, or several: lists of `{"role": …, "content": …}`."""
        single = bool(messages) and isinstance(messages[0], dict)
        each = cast("Sequence[Prompt]", [messages] if single else messages)
        return self._run(each, params, progress)

    def stats(self) -> SchedulerStats:
        """Counters and gauges of the core."""
        return self._engine.scheduler.stats()

    def check_invariants(self, *, idle: bool = False) -> None:
        """Raises InternalError naming the invariant that does not hold; `idle`: also that nothing is held."""
        self._engine.scheduler.check_invariants(idle=idle)

    def _run(
        self,
        prompts: Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None,
        progress: bool | None,
    ) -> list[RequestOutput]:
        if params is None or isinstance(params, SamplingParams):
            each = [params if params is not None else SamplingParams()] * len(prompts)
        else:
            each = list(params)
        if len(each) != len(prompts):
            raise InvalidRequest(f"params: expected one for each of {len(prompts)} prompts, got {len(each)}")
        console = Console(stderr=True)
        shown = console.is_terminal and len(prompts) > 1 if progress is None else progress
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=console, transient=True, disable=not shown) as bar:
            return _Batch(self._engine, bar).run(prompts, each)


class _Batch:
    """One call's requests on their way through the engine."""

    def __init__(self, engine: Engine, bar: Progress) -> None:
        self._engine = engine
        self._scheduler = engine.scheduler
        self._bar = bar
        self._running: dict[int, RequestOutput] = {}

    def run(self, prompts: Sequence[Prompt], params: Sequence[SamplingParams]) -> list[RequestOutput]:
        """Everything, in order. If one prompt is refused, or on Ctrl-C, none goes on."""
        task = self._bar.add_task("Generating", total=len(prompts))
        outputs = []
        try:
            for prompt, each in zip(prompts, params, strict=True):
                outputs.append(self._submit(prompt, each))
            while self._running:
                self._engine.step()
                self._take()
                self._bar.update(task, completed=len(prompts) - len(self._running))
        finally:
            for request_id in self._running:
                self._scheduler.release(request_id)
            if self._running:
                self._engine.step()
        return outputs

    def _submit(self, prompt: Prompt, params: SamplingParams) -> RequestOutput:
        prompt_token_ids = self._engine.encode(prompt)
        while True:
            try:
                request_id = self._scheduler.submit(prompt_token_ids, params)
                break
            except QueueFull:
                # More prompts than may wait: work some off first.
                self._engine.step()
                self._take()
        output = RequestOutput(
            request_id=request_id,
            prompt=prompt if isinstance(prompt, str) else None,
            prompt_token_ids=prompt_token_ids,
            outputs=[CompletionOutput(index) for index in range(params.n)],
        )
        self._running[request_id] = output
        return output

    def _take(self) -> None:
        for request_id in self._scheduler.take_ready():
            for delta in self._scheduler.take_output(request_id):
                output = self._running.get(request_id)
                if output is not None:
                    _add(output, delta)
                    if delta.metrics is not None:
                        del self._running[request_id]


def _add(output: RequestOutput, delta: OutputDelta) -> None:
    answer = output.outputs[delta.index]
    answer.text += delta.text
    answer.token_ids += delta.token_ids
    if delta.logprobs is not None:
        answer.logprobs = (answer.logprobs or []) + delta.logprobs
    if delta.finish_reason is not None:
        answer.finish_reason = delta.finish_reason
        answer.stop_reason = delta.stop_reason
        answer.error = delta.error
    if delta.metrics is not None:
        output.metrics = delta.metrics
