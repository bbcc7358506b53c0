"""`_core.Scheduler` driven alone, by a model that is a few lines of numpy."""

from __future__ import annotations

import numpy as np

from pagurid import _core

VOCAB_SIZE = 50


def counting_logits(plan: _core.StepPlan) -> np.ndarray:
    """Logits `[num_logits_rows, VOCAB_SIZE]` of a model that always says the next number."""
    logits = np.zeros((plan.num_logits_rows, VOCAB_SIZE), np.float32)
    last = plan.token_ids[plan.logits_rows[: plan.num_logits_rows]]
    logits[np.arange(len(last)), (last + 1) % VOCAB_SIZE] = 1.0
    return logits


def test_one_thin_thread_from_submit_to_output() -> None:
    """A request is planned, computed, sampled and taken; afterwards nothing is left."""
    config = _core.SchedulerConfig(
        num_blocks=16, block_size=4, max_model_len=64, max_num_seqs=2, max_num_batched_tokens=8, vocab_size=VOCAB_SIZE
    )
    vocabulary = _core.Vocabulary([b"%d " % token for token in range(VOCAB_SIZE)])
    scheduler = _core.Scheduler(config, vocabulary)
    request_id = scheduler.submit(list(range(1, 11)), _core.SamplingParams(temperature=0, max_tokens=3))
    text, token_ids, finish_reason = "", [], None
    assert scheduler.wait_for_work(0.0)
    while scheduler.plan():
        scheduler.sample(counting_logits(scheduler.step_plan))
        scheduler.commit()
        scheduler.check_invariants()
        for ready in scheduler.take_ready():
            assert ready == request_id
            for delta in scheduler.take_output(ready):
                text += delta.text
                token_ids += delta.token_ids
                finish_reason = delta.finish_reason or finish_reason
    assert (text, token_ids, finish_reason) == ("11 12 13 ", [11, 12, 13], "length")
    assert not scheduler.wait_for_work(0.0)
    scheduler.check_invariants(idle=True)
