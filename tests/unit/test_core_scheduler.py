"""`_core.Scheduler` driven alone, by a toy model whose right answers are known."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from toy_model import EOS, ToyEngine, answer, config, prompt


def test_answers_are_right_alone_in_a_batch_and_under_memory_pressure() -> None:
    """Chunks, batching, the prefix cache and preemption change nothing but the time."""
    for num_blocks, preempts in ((200, False), (20, True)):
        engine = ToyEngine(config(num_blocks=num_blocks))
        prompts = [prompt(salt, 1 + 3 * salt) for salt in range(10)]
        ids = [engine.submit(tokens, max_tokens=30) for tokens in prompts]
        engine.run()
        for tokens, request_id in zip(prompts, ids, strict=True):
            assert engine.answers[request_id, 0].token_ids == answer(tokens, 30)
        assert (engine.scheduler.stats().preemptions > 0) is preempts
        assert (
            sum(metrics.preemptions for metrics in engine.metrics.values())
            == engine.scheduler.stats().preemptions
        )


def test_arrays_of_the_plan_never_move_and_are_not_copies() -> None:
    """Torch can hold them for the engine's life."""
    engine = ToyEngine(config())
    names = ["token_ids", "positions", "slot_mapping", "query_start", "context_lens"]
    names += ["block_tables", "logits_rows"]
    arrays = {name: getattr(engine.plan, name) for name in names}
    addresses = {name: array.ctypes.data for name, array in arrays.items()}
    engine.submit(prompt(1, 5), max_tokens=2)
    assert engine.scheduler.plan()
    assert arrays["token_ids"][:5].tolist() == prompt(1, 5)
    assert arrays["positions"][:5].tolist() == [0, 1, 2, 3, 4]
    assert {name: getattr(engine.plan, name).ctypes.data for name in arrays} == addresses
    assert arrays["block_tables"].shape == (8, 32)
    assert arrays["slot_mapping"].dtype == np.int64
    del engine
    assert arrays["token_ids"][:5].tolist() == prompt(1, 5), "a view keeps the buffers alive"


@pytest.mark.parametrize(("length", "hit"), [(31, 16), (32, 16), (33, 32)])
def test_hits_are_whole_blocks_and_the_last_token_is_computed(length: int, hit: int) -> None:
    """D16: the same prompt twice, block 16; the text is the same as cold."""
    engine = ToyEngine(config(block_size=16, max_num_batched_tokens=64))
    cold, cold_metrics = engine.complete(prompt(1, length), max_tokens=5)
    warm, warm_metrics = engine.complete(prompt(1, length), max_tokens=5)
    assert (cold_metrics.cached_tokens, warm_metrics.cached_tokens) == (0, hit)
    assert warm.token_ids == cold.token_ids == answer(prompt(1, length), 5)
    assert engine.chunks[0] == [length]
    assert all(chunk > 0 for step in engine.chunks for chunk in step), "no forward of length 0"
    stats = engine.scheduler.stats()
    assert (stats.cached_tokens, stats.prefix_cache_queries_tokens) == (hit, 2 * length)


def test_a_chunk_as_long_as_the_cached_prefix() -> None:
    """D16: a prompt of 520 tokens, 512 of them cached, chunks of 512."""
    engine = ToyEngine(config(num_blocks=100, block_size=16, max_model_len=600, max_num_batched_tokens=512))
    engine.complete(prompt(1, 513), max_tokens=1)
    got, metrics = engine.complete(prompt(1, 520), max_tokens=3)
    assert (metrics.cached_tokens, got.token_ids) == (512, answer(prompt(1, 520), 3))


@pytest.mark.parametrize("prefix_hash_bits", [0, 8, 128])
def test_colliding_hashes_never_share_kv(prefix_hash_bits: int) -> None:
    """D17: two different prompts of 16 tokens under a constant hash; each answer equals its cold run."""
    engine = ToyEngine(config(block_size=16, max_num_batched_tokens=64, prefix_hash_bits=prefix_hash_bits))
    for salt in (1, 2, 3, 1, 2, 3):
        tokens = prompt(salt, 40)
        assert engine.complete(tokens, max_tokens=8)[0].token_ids == answer(tokens, 8)


def test_ids_are_unique_and_abort_hits_only_its_own() -> None:
    """D19: equal requests at once; one is cancelled; slots are used again under other ids."""
    engine = ToyEngine(config())
    seen: set[int] = set()
    for _ in range(20):
        ids = [engine.submit(prompt(1, 6), max_tokens=8, ignore_eos=True) for _ in range(3)]
        assert not seen.intersection(ids)
        seen.update(ids)
        engine.step()
        engine.scheduler.cancel(ids[1])
        engine.run()
        reasons = [engine.answers[request_id, 0].finish_reason for request_id in ids]
        assert reasons == ["length", "cancelled", "length"]
        expected = answer(prompt(1, 6), 8, ignore_eos=True)
        assert engine.answers[ids[0], 0].token_ids == engine.answers[ids[2], 0].token_ids == expected


@pytest.mark.parametrize("block_size", [1, 16])
@pytest.mark.parametrize("finish", ["stop", "length", "cancelled", "error"])
def test_every_finish_gives_everything_back(block_size: int, finish: str) -> None:
    """D20: one short prompt, max_tokens 200, chunks of 4; the idle invariant holds after each kind of end."""
    engine = ToyEngine(
        config(
            num_blocks=300, block_size=block_size, max_model_len=256, max_num_seqs=4, max_num_batched_tokens=4
        )
    )
    expected = answer(prompt(1, 10), 200, ignore_eos=True)
    stop_token_ids = [expected[20]] if finish == "stop" else None
    request_id = engine.submit(prompt(1, 10), max_tokens=200, ignore_eos=True, stop_token_ids=stop_token_ids)
    if finish in ("cancelled", "error"):
        for _ in range(30):
            assert engine.step()
        if finish == "cancelled":
            engine.scheduler.cancel(request_id)
        else:
            assert engine.scheduler.plan()
            engine.scheduler.abort_step("the model exploded")
    engine.run()
    got = engine.answers[request_id, 0]
    assert got.finish_reason == finish
    assert got.token_ids == expected[: len(got.token_ids)]
    assert got.error == ("the model exploded" if finish == "error" else None)
    assert got.stop_reason == (expected[20] if finish == "stop" else None)
    stats = engine.scheduler.stats()
    assert stats.requests_finished == {
        kind: int(kind == finish) for kind in ("stop", "length", "cancelled", "error")
    }
    assert stats.free_blocks + stats.cached_blocks == stats.total_blocks == 299
    assert (stats.num_running, stats.num_waiting, stats.used_blocks) == (0, 0, 0)


def test_a_long_prompt_starves_nobody_and_is_not_starved() -> None:
    """D21: budget 512, 8 decodes, a prompt of 8192, then prompts of 20."""
    engine = ToyEngine(
        config(num_blocks=600, block_size=16, max_model_len=9000, max_num_seqs=64, max_num_batched_tokens=512)
    )
    decodes = [engine.submit(prompt(salt, 5), max_tokens=200, ignore_eos=True) for salt in range(8)]
    for _ in range(3):
        engine.step()
    long = engine.submit(prompt(20, 8192), max_tokens=2, ignore_eos=True)
    shorts = [engine.submit(prompt(30 + salt, 20), max_tokens=2, ignore_eos=True) for salt in range(20)]
    for _ in range(3):
        before = [len(engine.answers[request_id, 0].token_ids) for request_id in decodes]
        engine.step()
        assert [len(engine.answers[request_id, 0].token_ids) for request_id in decodes] == [
            n + 1 for n in before
        ]
    assert all((request_id, 0) in engine.answers for request_id in shorts)
    assert engine.run() < 200
    assert engine.answers[long, 0].token_ids == answer(prompt(20, 8192), 2, ignore_eos=True)


def test_siblings_share_the_prompt() -> None:
    """n = 3: the first sequence alone computes the prompt; the others share its blocks, copying on write."""
    engine = ToyEngine(config())
    request_id = engine.submit(prompt(1, 30), n=3, max_tokens=6)
    engine.step()
    assert engine.chunks == [[16]]
    engine.step()
    assert engine.scheduler.stats().used_blocks == 8, "one prompt's"
    engine.step()
    assert engine.plan.num_block_copies == 2, "the half-filled last block, for all but one"
    assert engine.scheduler.stats().used_blocks == 10
    engine.run()
    assert sum(map(sum, engine.chunks)) == 30 + 3 * 5, "the prompt is computed once"
    for index in range(3):
        assert engine.answers[request_id, index].token_ids == answer(prompt(1, 30), 6)
    metrics = engine.metrics[request_id]
    assert (metrics.prompt_tokens, metrics.completion_tokens) == (30, 18)


def test_a_slow_reader_gets_one_delta_and_release_leaves_nothing() -> None:
    """Outputs merge until they are taken; a released request is never heard of again."""
    engine = ToyEngine(config())
    scheduler = engine.scheduler
    slow = engine.submit(prompt(1, 4), max_tokens=9, ignore_eos=True)
    gone = engine.submit(prompt(2, 4), max_tokens=9, ignore_eos=True)
    for _ in range(4):
        scheduler.plan()
        scheduler.sample(engine.forward())
        scheduler.commit()
    assert scheduler.has_ready()
    scheduler.release(gone)
    while scheduler.plan():
        scheduler.sample(engine.forward())
        scheduler.commit()
    assert scheduler.take_ready() == [slow]
    [delta] = scheduler.take_output(slow)
    assert (len(delta.token_ids), delta.finish_reason, delta.index) == (9, "length", 0)
    assert delta.metrics is not None
    assert scheduler.take_output(slow) == scheduler.take_output(gone) == []
    assert scheduler.progress(slow) is scheduler.progress(gone) is None
    assert not scheduler.has_unfinished_requests()
    scheduler.check_invariants(idle=True)


def test_costs_and_times_add_up() -> None:
    """The requests' shares of the steps' time are the steps' time; so are the costs."""
    engine = ToyEngine(config(num_blocks=24, cost_per_hour=3.6, kv_bytes_per_block=1000))
    for salt in range(8):
        engine.submit(prompt(salt, 3 + salt), n=1 + salt % 2, max_tokens=20, ignore_eos=True)
    engine.run()
    stats = engine.scheduler.stats()
    assert stats.attributed_busy_s == stats.busy_s > 0
    assert sum(m.busy_ms for m in engine.metrics.values()) == pytest.approx(stats.busy_s * 1e3, rel=1e-9)
    cost = sum(m.cost for m in engine.metrics.values() if m.cost is not None)
    assert cost == pytest.approx(stats.busy_s * 3.6 / 3600, rel=1e-9)
    for metrics in engine.metrics.values():
        assert metrics.ttft_ms is not None
        assert metrics.prefill_ms is not None
        assert metrics.decode_ms is not None
        assert metrics.ttft_ms == pytest.approx(metrics.queue_ms + metrics.prefill_ms)
        assert metrics.total_ms >= metrics.ttft_ms + metrics.decode_ms - 1e-9
        assert metrics.kv_cache_peak_bytes % 1000 == 0 < metrics.kv_cache_peak_bytes
        assert metrics.inter_token_p50_ms is not None
        assert metrics.cost is not None
        tokens = metrics.prompt_tokens + metrics.completion_tokens
        assert metrics.cost_per_1k_tokens == pytest.approx(metrics.cost / tokens * 1000)


def test_a_second_engine_thread_gets_an_error_not_a_race() -> None:
    """While one thread is inside, another is told so; the parked engine is not inside."""
    engine = ToyEngine(config())
    scheduler = engine.scheduler
    woken: list[bool] = []
    parked = threading.Thread(target=lambda: woken.append(scheduler.wait_for_work(60.0)))
    parked.start()
    scheduler.check_invariants(idle=True)
    scheduler.wake()
    parked.join(10.0)
    assert woken == [False]
    parked = threading.Thread(target=lambda: woken.append(scheduler.wait_for_work(60.0)))
    parked.start()
    engine.submit([1], max_tokens=1)
    parked.join(10.0)
    assert woken == [False, True]
    assert scheduler.wait_for_work(0.0)


def test_threads_submit_cancel_and_read_while_the_engine_runs() -> None:
    """Every request of 4 submitting threads ends once, right; nothing is left behind."""
    engine = ToyEngine(config(num_blocks=40, max_queued_requests=1000))
    scheduler = engine.scheduler
    wanted: dict[int, tuple[list[int], bool]] = {}

    def submit(thread: int) -> None:
        for at in range(50):
            tokens = prompt(thread * 50 + at, 1 + at % 20)
            request_id = engine.submit(tokens, max_tokens=12)
            wanted[request_id] = (tokens, at % 7 == 0)
            if at % 7 == 0:
                scheduler.cancel(request_id)
            scheduler.progress(request_id)
            stats = scheduler.stats()
            assert stats.free_blocks + stats.cached_blocks + stats.used_blocks == stats.total_blocks

    threads = [threading.Thread(target=submit, args=(thread,)) for thread in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads) or scheduler.has_unfinished_requests():
        scheduler.wait_for_work(0.001)
        engine.step()
    engine.run()
    assert len(wanted) == len(engine.metrics) == 200
    for request_id, (tokens, cancelled) in wanted.items():
        got = engine.answers[request_id, 0]
        expected = answer(tokens, 12)
        if cancelled and got.finish_reason == "cancelled":
            assert got.token_ids == expected[: len(got.token_ids)]
        else:
            assert got.token_ids == expected
            assert got.finish_reason == ("stop" if expected[-1] == EOS else "length")
