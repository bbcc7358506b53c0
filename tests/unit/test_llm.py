"""LLM: scripts' view of the engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pagurid import LLM, SamplingParams
from pagurid.errors import InvalidRequest

if TYPE_CHECKING:
    from pathlib import Path

PARAMS = SamplingParams(temperature=0.0, max_tokens=6, ignore_eos=True)


@pytest.fixture(scope="module")
def llm(tiny_model_dir: Path) -> LLM:
    return LLM(str(tiny_model_dir), max_num_seqs=4, max_queued_requests=4)


def test_answers_come_in_the_order_of_the_prompts(llm: LLM) -> None:
    """More prompts than the queue holds, too."""
    prompts = [f"number {number}" for number in range(20)]
    outputs = llm.generate(prompts, PARAMS)
    assert [output.prompt for output in outputs] == prompts
    for prompt, output in zip(prompts, outputs, strict=True):
        [again] = llm.generate(prompt, PARAMS)
        assert again.outputs[0].text == output.outputs[0].text
        assert output.prompt_token_ids == llm.tokenizer.encode(prompt, add_special_tokens=True)
    llm.check_invariants(idle=True)


def test_token_ids_one_or_many(llm: LLM) -> None:
    [one] = llm.generate([5, 6, 7], PARAMS)
    many = llm.generate([[5, 6, 7], [8]], [PARAMS, SamplingParams(n=2, max_tokens=3, seed=1)])
    assert one.prompt is None
    assert many[0].outputs[0].token_ids == one.outputs[0].token_ids
    assert [answer.index for answer in many[1].outputs] == [0, 1]
    assert llm.generate([], PARAMS) == []


def test_chat_one_or_many(llm: LLM) -> None:
    messages = [{"role": "user", "content": "hello"}]
    [one] = llm.chat(messages, PARAMS)
    two = llm.chat([messages, messages], PARAMS)
    assert one.outputs[0].text == two[0].outputs[0].text == two[1].outputs[0].text


def test_stop_strings_and_logprobs(llm: LLM) -> None:
    [free] = llm.generate([5, 6, 7], SamplingParams(temperature=0.0, max_tokens=30, ignore_eos=True))
    text = free.outputs[0].text
    stop = text[4:7]
    at = text.index(stop)
    params = SamplingParams(temperature=0.0, max_tokens=30, ignore_eos=True, stop=stop, logprobs=2)
    [stopped] = llm.generate([5, 6, 7], params)
    answer = stopped.outputs[0]
    assert answer.text == text[:at]
    assert (answer.finish_reason, answer.stop_reason) == ("stop", stop)
    assert answer.logprobs is not None
    assert [entry.token_id for entry in answer.logprobs] == answer.token_ids
    assert all(len(entry.top) == 2 and entry.top[0][1] >= entry.top[1][1] for entry in answer.logprobs)
    # Greedy: the chosen token is the most likely one.
    assert all(entry.top[0] == (entry.token_id, entry.logprob) for entry in answer.logprobs)


def test_one_bad_prompt_refuses_all_and_leaves_nothing(llm: LLM) -> None:
    with pytest.raises(InvalidRequest):
        llm.generate([[5, 6], []], PARAMS)
    with pytest.raises(InvalidRequest, match="2 prompts"):
        llm.generate(["a", "b"], [PARAMS])
    llm.check_invariants(idle=True)
