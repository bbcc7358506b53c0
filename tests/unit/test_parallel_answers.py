"""n answers to one prompt: computed once, shared, copied on write, on the real KV cache."""

from __future__ import annotations

from pathlib import Path

import pytest

from pagurid import LLM, SamplingParams


@pytest.mark.parametrize("max_num_seqs", [8, 2])
@pytest.mark.parametrize("enable_prefix_caching", [True, False])
def test_each_of_n_greedy_answers_is_the_one_of_n_1_to_the_bit(
    tiny_model_dir: Path, max_num_seqs: int, enable_prefix_caching: bool
) -> None:
    """With fewer seats than answers the rest start later, from the prefix cache or anew."""
    sizes = {"max_num_seqs": max_num_seqs, "enable_prefix_caching": enable_prefix_caching}
    llm = LLM(str(tiny_model_dir), **sizes)
    params = {"temperature": 0.0, "max_tokens": 20, "ignore_eos": True, "logprobs": 2}
    for length in (1, 15, 16, 17, 31, 33):
        prompt = [1 + at % 50 for at in range(length)]
        [alone] = llm.generate(prompt, SamplingParams(**params)).pop().outputs
        several = llm.generate(prompt, SamplingParams(n=4, **params)).pop().outputs
        assert len(several) == 4
        for answer in several:
            assert answer.token_ids == alone.token_ids
            assert [entry.logprob for entry in answer.logprobs or []] == [
                entry.logprob for entry in alone.logprobs or []
            ]
    llm.check_invariants(idle=True)


def test_the_prompt_is_computed_once(tiny_model_dir: Path) -> None:
    llm = LLM(str(tiny_model_dir), enable_prefix_caching=False, max_num_batched_tokens=64)
    scheduler = llm._engine.scheduler
    params = SamplingParams(n=4, temperature=1.0, seed=3, max_tokens=3, ignore_eos=True)
    request_id = scheduler.submit(list(range(1, 41)), params)
    assert llm._engine.step()
    stats = scheduler.stats()
    assert (stats.last_step_tokens, stats.used_blocks, stats.num_running) == (40, 3, 4)
    assert llm._engine.step()
    stats = scheduler.stats()
    assert (stats.last_step_tokens, stats.used_blocks) == (4, 6), "three copies of the half-filled block"
    while llm._engine.step():
        pass
    assert len({tuple(delta.token_ids) for delta in scheduler.take_output(request_id)}) > 1, (
        "each has its seed"
    )
    llm.check_invariants(idle=True)
