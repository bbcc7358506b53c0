"""AsyncLLM: many streams in one loop, ends of every kind, nothing left behind."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import pytest

from pagurid import AsyncLLM, SamplingParams
from pagurid.errors import ContextLengthExceeded, InvalidRequest, Overloaded, QueueFull

if TYPE_CHECKING:
    from pathlib import Path

    from pagurid import Generation, OutputDelta

LONG = SamplingParams(max_tokens=400, ignore_eos=True, seed=1)


@pytest.fixture
async def llm(tiny_model_dir: Path) -> AsyncIterator[AsyncLLM]:
    async with AsyncLLM(str(tiny_model_dir), max_num_seqs=32, cost_per_hour=3.6) as llm:
        yield llm


async def idle(llm: AsyncLLM) -> None:
    """Waits until the engine has nothing to do, then checks that it holds nothing."""
    async with asyncio.timeout(20):
        while llm._engine.scheduler.has_unfinished_requests():  # noqa: ASYNC110
            await asyncio.sleep(0.005)
    await asyncio.sleep(0.02)
    llm.check_invariants(idle=True)


async def read(generation: Generation) -> list[OutputDelta]:
    return [delta async for delta in generation]


async def test_deltas_join_to_the_whole(llm: AsyncLLM) -> None:
    generation = await llm.submit("Once upon a time", SamplingParams(max_tokens=60, ignore_eos=True, seed=5))
    deltas = await read(generation)
    tokens = [token for delta in deltas for token in delta.token_ids]
    assert len(tokens) == 60
    assert "".join(delta.text for delta in deltas) == llm.tokenizer.decode(tokens)
    assert deltas[-1].finish_reason == "length"
    metrics = deltas[-1].metrics
    assert metrics is not None
    assert metrics.prompt_tokens == generation.prompt_tokens
    assert metrics.ttft_ms is not None
    assert metrics.ttft_ms >= metrics.queue_ms
    assert metrics.kv_cache_peak_bytes > 0
    assert [delta for delta in deltas if delta.metrics is not None] == [deltas[-1]]


async def test_a_chat_is_rendered(llm: AsyncLLM) -> None:
    generation = await llm.submit([{"role": "user", "content": "hello"}], SamplingParams(max_tokens=4))
    text = llm.tokenizer.render_chat([{"role": "user", "content": "hello"}])
    assert generation.prompt_token_ids == llm.tokenizer.encode(text)
    await read(generation)


async def test_leaving_the_iterator_cancels(llm: AsyncLLM) -> None:
    async for _ in llm.generate([5, 6, 7], LONG):
        break
    generation = await llm.submit([5, 6, 7], LONG)
    await anext(generation)
    del generation
    gc.collect()
    await idle(llm)


async def test_a_cancelled_task_cancels_its_request(llm: AsyncLLM) -> None:
    async def consume() -> None:
        async for _ in llm.generate([5, 6, 7], LONG):
            pass

    tasks = [asyncio.create_task(consume()) for _ in range(8)]
    await asyncio.sleep(0.05)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await idle(llm)
    finished = llm.stats().requests_finished
    assert finished["cancelled"] > 0
    assert sum(finished.values()) == 8


async def test_cancel_still_tells_the_end(llm: AsyncLLM) -> None:
    generation = await llm.submit([5, 6, 7], LONG)
    first = await anext(generation)
    generation.cancel()
    generation.cancel()
    rest = await read(generation)
    assert rest[-1].finish_reason == "cancelled"
    assert rest[-1].metrics is not None
    assert rest[-1].completion_tokens < 400
    assert first.completion_tokens >= 1
    await idle(llm)


async def test_a_slow_reader_gets_fewer_larger_deltas(llm: AsyncLLM) -> None:
    slow = await llm.submit([5, 6, 7], SamplingParams(max_tokens=100, ignore_eos=True, seed=2))
    await read(await llm.submit([5, 6, 7], SamplingParams(max_tokens=200, ignore_eos=True, seed=3)))
    deltas = await read(slow)
    assert len(deltas) == 1
    assert len(deltas[0].token_ids) == 100


async def test_bad_requests_never_reach_the_engine(llm: AsyncLLM) -> None:
    """D13, D14, D15 at this door."""
    for prompt in ([], "", [5.5], [True], {"role": "user"}, [[5]]):
        with pytest.raises(InvalidRequest):
            await llm.submit(prompt)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match="must be in 0"):
        await llm.submit([10**6])
    with pytest.raises(ContextLengthExceeded, match="512"):
        await llm.submit([5] * 512)
    with pytest.raises(ContextLengthExceeded, match="512"):
        await llm.submit([5] * 500, SamplingParams(max_tokens=13))
    assert llm.stats().steps == 0
    await idle(llm)


async def test_a_full_queue_refuses(tiny_model_dir: Path) -> None:
    async with AsyncLLM(str(tiny_model_dir), max_num_seqs=1, max_queued_requests=2) as llm:
        generations = [await llm.submit([5], LONG)]
        await anext(generations[0])
        generations += [await llm.submit([5], LONG) for _ in range(2)]
        with pytest.raises(QueueFull) as caught:
            await llm.submit([5], LONG)
        assert caught.value.retry_after_ms
        progress = generations[2].progress()
        assert progress is not None
        assert (progress.state, progress.position) == ("queued", 1)
        for generation in generations:
            generation.close()
        await idle(llm)


async def test_a_closed_engine_refuses(tiny_model_dir: Path) -> None:
    llm = AsyncLLM(str(tiny_model_dir))
    generation = await llm.submit([5], LONG)
    await llm.close()
    await llm.close()
    assert [delta async for delta in generation] == []
    with pytest.raises(Overloaded):
        await llm.submit([5], LONG)


async def test_thirty_two_clients_at_once_and_their_costs_add_up(llm: AsyncLLM) -> None:
    """32 clients at once, 128 + 128 tokens: no error, and costs that add up to the busy time's."""
    params = SamplingParams(max_tokens=128, ignore_eos=True, temperature=0.0)
    generations = [await llm.submit([3 + client] * 128, params) for client in range(32)]
    last = [deltas[-1] for deltas in await asyncio.gather(*map(read, generations))]
    assert all(delta.finish_reason == "length" and delta.completion_tokens == 128 for delta in last)
    metrics = [delta.metrics for delta in last]
    stats = llm.stats()
    assert stats.busy_s > 0
    busy_s = sum(each.busy_ms for each in metrics if each) / 1000
    assert busy_s == pytest.approx(stats.busy_s, rel=1e-3)
    cost = sum(each.cost for each in metrics if each and each.cost)
    assert cost == pytest.approx(stats.busy_s / 3600 * 3.6, rel=1e-3)
    await idle(llm)


def test_one_loop_after_another(tiny_model_dir: Path) -> None:
    """A loop that ended in the middle of an answer leaves nothing behind that the next one would wait for."""
    llm = AsyncLLM(str(tiny_model_dir))

    held = []

    async def begin() -> None:
        held.append(await llm.submit([5, 6, 7], LONG))
        await anext(held[-1])

    async def whole() -> int:
        async with asyncio.timeout(20):
            return len([delta async for delta in llm.generate([5, 6, 7], LONG)])

    for _ in range(3):
        asyncio.run(begin())
        # The answer goes on, and its news finds the loop closed.
        while llm._engine.scheduler.has_unfinished_requests():
            time.sleep(0.01)
        assert asyncio.run(whole()) > 0
    asyncio.run(llm.close())
