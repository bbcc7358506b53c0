"""The engine's own matters: failing steps, dying threads, sizes that cannot be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pagurid import AsyncLLM, EngineConfig, SamplingParams
from pagurid.engine import Engine
from pagurid.errors import ConfigError, InternalError, ModelLoadError, Overloaded

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

    from pagurid.engine.model_runner import ModelRunner

GREEDY = SamplingParams(temperature=0.0, max_tokens=8, ignore_eos=True)


class FailingForward:
    """A real forward that raises in chosen steps."""

    def __init__(self, runner: ModelRunner, fails: Any) -> None:
        self._forward = runner.forward
        self._fails = fails
        self.calls = 0

    def forward(self) -> Tensor:
        self.calls += 1
        if self._fails(self.calls):
            raise RuntimeError("the forward broke")
        return self._forward()


async def test_a_failed_step_ends_its_requests_and_no_others(tiny_model_dir: Path) -> None:
    async with AsyncLLM(str(tiny_model_dir), max_model_len=128, enforce_eager=True) as llm:
        expected = [delta.token_ids async for delta in llm.generate([5, 6, 7], GREEDY)]
        llm._engine.runner = FailingForward(llm._engine.runner, lambda call: call == 3)  # type: ignore[assignment]
        deltas = [delta async for delta in llm.generate([5, 6, 7], GREEDY)]
        assert deltas[-1].finish_reason == "error"
        assert "the forward broke" in (deltas[-1].error or "")
        health = llm.health()
        assert health.alive
        assert health.consecutive_failed_steps == 1
        assert "the forward broke" in (health.last_error or "")
        again = [delta.token_ids async for delta in llm.generate([5, 6, 7], GREEDY)]
        assert sum(again, []) == sum(expected, [])
        assert llm.health().consecutive_failed_steps == 0
        llm.check_invariants(idle=True)


async def test_a_dead_engine_ends_everything_and_says_so(tiny_model_dir: Path) -> None:
    async with AsyncLLM(str(tiny_model_dir), max_model_len=128) as llm:
        step, steps = llm._engine.step, iter(range(3))

        def step_or_die() -> bool:
            if next(steps, None) is None:
                raise SystemError("the core broke")
            return step()

        llm._engine.step = step_or_die  # type: ignore[method-assign]
        generation = await llm.submit([5, 6, 7], SamplingParams(max_tokens=100, ignore_eos=True))
        with pytest.raises(InternalError, match="the core broke"):
            async for _ in generation:
                pass
        assert not llm.health().alive
        assert "the core broke" in (llm.health().last_error or "")
        with pytest.raises(Overloaded, match="the core broke"):
            await llm.submit([5, 6, 7], GREEDY)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"kv_cache_memory_bytes": 1000}, "too little memory for the KV cache"),
        ({"kv_cache_memory_bytes": 1 << 50}, r"--kv-cache-memory 1048576.00 GiB is too much: .* are free"),
        ({"num_gpu_blocks_override": 1}, "at least 2"),
        ({"num_gpu_blocks_override": 10**12}, "--num-gpu-blocks-override 1000000000000 is too much"),
        ({"max_num_batched_tokens": 8, "max_num_seqs": 64}, "max_num_batched_tokens"),
        ({"block_size": 0}, "block_size"),
        ({"max_model_len": 100_000}, "max_model_len is 100000"),
        ({"model": "/no/such/model"}, "there is no model"),
    ],
)
def test_what_cannot_be_is_one_clear_line(
    tiny_model_dir: Path, options: dict[str, Any], expected: str
) -> None:
    with pytest.raises(ConfigError, match=expected) as caught:
        Engine(EngineConfig(**{"model": str(tiny_model_dir), **options}))
    assert "\n" not in str(caught.value)


def test_an_unsupported_architecture_is_named(tiny_model_dir: Path, tmp_path: Path) -> None:
    config = (tiny_model_dir / "config.json").read_text().replace("LlamaForCausalLM", "OddForCausalLM")
    (tmp_path / "config.json").write_text(config)
    with pytest.raises(ModelLoadError, match="OddForCausalLM"):
        Engine(EngineConfig(model=str(tmp_path)))


def test_reference_kernels_give_the_same_greedy_text(tiny_model_dir: Path) -> None:
    from pagurid import LLM

    prompts = [[5, 6, 7, 8], [20, 30, 40] * 9]
    texts = []
    for kernels in ("reference", "rust"):
        llm = LLM(str(tiny_model_dir), max_model_len=128, kernels=kernels)
        texts.append([output.outputs[0].token_ids for output in llm.generate(prompts, GREEDY)])
    assert texts[0] == texts[1]


def test_thirty_two_requests_progress_evenly(tiny_model_dir: Path) -> None:
    """128 + 128 tokens each: from the step on that ends the last prefill, everyone gains a token a step."""
    engine = Engine(EngineConfig(model=str(tiny_model_dir), max_num_seqs=32))
    scheduler = engine.scheduler
    params = SamplingParams(max_tokens=128, ignore_eos=True, temperature=0.0)
    ids = [scheduler.submit([3 + number] * 128, params) for number in range(32)]
    tokens = dict.fromkeys(ids, 0)
    prefill_steps = 0
    while min(tokens.values()) < 128:
        assert engine.step()
        before = dict(tokens)
        for id in ids:
            for delta in scheduler.take_output(id):
                tokens[id] = delta.completion_tokens
        if min(before.values()) == 0:
            prefill_steps += 1
        else:
            gains = {tokens[id] - before[id] for id in ids if before[id] < 128}
            assert gains == {1}
    # 4,096 prompt tokens in steps of 256, of which running answers take a growing part.
    assert prefill_steps <= 20
    scheduler.check_invariants(idle=True)


def test_a_long_prompt_does_not_hold_up_short_ones(tiny_model_dir: Path) -> None:
    """D21: short prompts have their first token within three steps, running answers one in every step."""
    config = EngineConfig(model=str(tiny_model_dir), max_num_batched_tokens=32, max_num_seqs=16)
    engine = Engine(config)
    scheduler = engine.scheduler
    params = SamplingParams(max_tokens=60, ignore_eos=True)

    def gained(id: int) -> int:
        return sum(len(delta.token_ids) for delta in scheduler.take_output(id))

    running = scheduler.submit([9], params)
    engine.step()
    assert gained(running) == 1
    long = scheduler.submit([5] * 450, SamplingParams(max_tokens=1))
    engine.step()
    assert gained(running) == 1
    shorts = [scheduler.submit([6 + number] * 6, params) for number in range(3)]
    first_step: dict[int, int] = {}
    for step in range(1, 50):
        engine.step()
        assert gained(running) == 1
        for id in [long, *shorts]:
            if id not in first_step and gained(id):
                first_step[id] = step
        if long in first_step:
            break
    assert all(first_step[short] <= 3 for short in shorts)
    # It got all that the others left, at the least an equal share.
    assert first_step[long] < 30
    for id in [running, *shorts]:
        scheduler.release(id)
    engine.step()
    scheduler.check_invariants(idle=True)
