"""A step on the tape is the step that the Python forward pass describes, to the bit, for every model."""

from __future__ import annotations

import random
import threading
from typing import TYPE_CHECKING, Any

import pytest
import torch
from gguf import GGMLQuantizationType as Kind

from paged_runner import PagedRunner, meta_inputs
from pagurid import LLM, AsyncLLM, SamplingParams, ops
from pagurid._core.kernels import TapeRecorder
from pagurid.models import KvCache
from pagurid.ops.recorder import CannotRecord, record
from pagurid.weights import load_model
from tiny_gguf import write_tiny_gguf
from tiny_models import TinyModel, make_tiny_model

if TYPE_CHECKING:
    from pathlib import Path

    from pagurid.models import LlamaForCausalLM, StepInputs

MODELS = {
    "tied": TinyModel(),
    "untied_one_kv_head": TinyModel(tied=False, num_heads=8, num_kv_heads=1, head_dim=32, seed=1),
    "biases": TinyModel(attention_bias=True, mlp_bias=True, seed=2),
    "bfloat16": TinyModel(dtype=torch.bfloat16, seed=4),
    "float16": TinyModel(dtype=torch.float16, tied=False, attention_bias=True, seed=5),
    "head_norms": TinyModel(architecture="Qwen3ForCausalLM", qk_norm=True, tied=False, seed=3),
}


def model_of(name: str, directory: Path) -> LlamaForCausalLM:
    return load_model(make_tiny_model(directory / "tiny", MODELS[name])).model


def play_and_compare(model: LlamaForCausalLM, *, steps: int) -> None:
    """Random chunks of growing sequences, some alone, some many at once."""
    eager, recorded = PagedRunner(model), PagedRunner(model, recorded=True)
    rng = random.Random(0)
    for step in range(steps):
        keys = rng.sample("abcdefgh", rng.randrange(1, 9))
        work = {
            key: [rng.randrange(model.config.vocab_size) for _ in range(rng.choice([1, 1, 2, 19]))]
            for key in keys
        }
        all_rows = step % 3 == 0
        expected = eager.step(work, all_rows=all_rows)
        got = recorded.step(work, all_rows=all_rows)
        assert torch.equal(got, expected), f"step {step}: {work}"
    for part in ("k", "v"):
        assert torch.equal(getattr(eager.kv_cache, part), getattr(recorded.kv_cache, part))


@pytest.mark.parametrize("name", MODELS)
def test_it_equals_the_forward_pass_to_the_bit(name: str, tmp_path: Path) -> None:
    play_and_compare(model_of(name, tmp_path), steps=30)


@pytest.mark.parametrize("activations", ["int16", "int8"])
@pytest.mark.parametrize("kind", [Kind.Q4_1, Kind.Q8_0])
def test_with_quantised_weights_too(kind: Kind, activations: Any, tmp_path: Path) -> None:
    options = TinyModel(attention_bias=True, architecture="Qwen2ForCausalLM", intermediate_size=96)
    file = tmp_path / "tiny.gguf"
    write_tiny_gguf(file, options, kind=kind)
    play_and_compare(load_model(file, quantization=activations).model, steps=20)


def test_the_engine_plays_it_and_the_text_is_the_same(tiny_model_dir: Path) -> None:
    params = SamplingParams(temperature=0.8, seed=3, n=3, max_tokens=30, ignore_eos=True)
    texts = []
    for enforce_eager in (False, True):
        llm = LLM(str(tiny_model_dir), enforce_eager=enforce_eager, max_num_batched_tokens=64)
        assert (llm._engine.tape is None) is enforce_eager
        outputs = llm.generate(["The tide comes in", "What is two and two?", "def fold("], params)
        texts.append([answer.token_ids for output in outputs for answer in output.outputs])
    assert texts[0] == texts[1]


def test_what_is_not_an_op_cannot_be_recorded(tiny_model_dir: Path) -> None:
    model = load_model(tiny_model_dir).model
    kv_cache = KvCache(model.config, 4)

    def scaled(inputs: StepInputs) -> torch.Tensor:
        logits: torch.Tensor = model.forward(inputs, kv_cache) * 0.5
        return logits

    with pytest.raises(CannotRecord, match=r"aten\.mul"):
        record(scaled, meta_inputs())

    def from_elsewhere(inputs: StepInputs) -> torch.Tensor:
        rows: torch.Tensor = ops.take_rows(torch.empty(3, 8, device="meta"), inputs.logits_rows)
        return rows

    with pytest.raises(CannotRecord, match="no other op has made"):
        record(from_elsewhere, meta_inputs())

    def other_positions(inputs: StepInputs) -> torch.Tensor:
        x = ops.embedding(inputs.positions, model.embedding.weight)
        return model.lm_head(ops.take_rows(x, inputs.logits_rows))

    with pytest.raises(CannotRecord, match="other token_ids"):
        record(other_positions, meta_inputs())
    assert record(lambda inputs: model.forward(inputs, kv_cache), meta_inputs()) is not None


def test_a_model_that_cannot_be_recorded_is_served_op_by_op(
    tiny_model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pagurid.models import LlamaForCausalLM

    params = SamplingParams(temperature=0, max_tokens=10)
    expected = LLM(str(tiny_model_dir)).generate("The tide", params)[0].outputs[0].text
    forward = LlamaForCausalLM.forward
    monkeypatch.setattr(LlamaForCausalLM, "__call__", lambda *arguments: forward(*arguments) * 2.0)
    llm = LLM(str(tiny_model_dir))
    assert llm._engine.tape is None
    assert llm.generate("The tide", params)[0].outputs[0].text == expected


def test_wrong_widths_are_refused() -> None:
    tape = TapeRecorder()
    x = tape.embedding(torch.zeros(7, 4))
    with pytest.raises(ValueError, match="x must be 5 wide; got 4"):
        tape.linear(x, torch.zeros(3, 5))
    with pytest.raises(ValueError, match="there is no value 9 yet"):
        tape.silu_mul(9)
    with pytest.raises(ValueError, match="two values with the same rows"):
        tape.add_rms_norm(x, x, torch.zeros(4), 1e-5)
    with pytest.raises(ValueError, match="logits must have a row for each token that they are wanted of"):
        tape.finish(x)


async def test_a_failed_play_ends_its_requests_and_no_others(tiny_model_dir: Path) -> None:
    greedy = SamplingParams(temperature=0.0, max_tokens=8, ignore_eos=True)
    async with AsyncLLM(str(tiny_model_dir), max_model_len=128) as llm:
        expected = [token async for delta in llm.generate([5, 6, 7], greedy) for token in delta.token_ids]
        engine = llm._engine
        good = engine.tape
        # A tape on a smaller cache: the plan's blocks are not in it.
        engine.tape = PagedRunner(engine.runner._model, num_blocks=2, recorded=True).tape
        deltas = [delta async for delta in llm.generate(list(range(5, 60)), greedy)]
        assert deltas[-1].finish_reason == "error"
        assert "a model step failed" in (deltas[-1].error or "")
        engine.tape = good
        again = [token async for delta in llm.generate([5, 6, 7], greedy) for token in delta.token_ids]
        assert again == expected
        llm.check_invariants(idle=True)


def test_two_threads_never_play_one_tape_at_once(tiny_model_dir: Path) -> None:
    runner = PagedRunner(load_model(tiny_model_dir).model, recorded=True, num_blocks=64)
    refused: list[str] = []

    def play(key: str) -> None:
        for token in range(40):
            try:
                runner.step({key: [token]})
            except ValueError as error:
                refused.append(str(error))

    threads = [threading.Thread(target=play, args=(key,)) for key in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
        assert not thread.is_alive()
    assert set(refused) <= {"another thread plays this tape"}
