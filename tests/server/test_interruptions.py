"""What is cut short says so, and what was cut short can be begun again."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from test_websocket import HELLO, id_of, opened, receive, send

from conftest import running_server
from pagurid import LLM, AsyncLLM, SamplingParams
from pagurid.client import Client
from pagurid.errors import ConfigError, Overloaded
from pagurid.request_options import RequestOptions
from pagurid.server.openai_api.logprobs import completion_logprobs
from pagurid.server.serving import Serving
from pagurid.server.settings import ServerSettings


def test_ctrl_c_in_the_middle_of_a_step_leaves_a_working_engine(
    tiny_model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    llm = LLM(str(tiny_model_dir), enforce_eager=True)
    forward = llm._engine.runner.forward
    calls = iter(range(100))

    def interrupted() -> object:
        if next(calls) == 2:
            raise KeyboardInterrupt
        return forward()

    monkeypatch.setattr(llm._engine.runner, "forward", interrupted)
    params = SamplingParams(max_tokens=8, ignore_eos=True)
    with pytest.raises(KeyboardInterrupt):
        llm.generate([1, 2, 3], params)
    llm.check_invariants(idle=True)
    assert len(llm.generate([1, 2, 3], params)[0].outputs[0].token_ids) == 8


async def test_a_part_of_an_answer_does_not_pass_for_the_whole(tiny_model_dir: Path) -> None:
    """D29: whoever closes the engine ends its generations; their readers hear of it."""
    async with AsyncLLM(str(tiny_model_dir)) as llm:
        serving = Serving(llm, ServerSettings())
        params = SamplingParams(max_tokens=400, ignore_eos=True)
        generation = await serving.start([1, 2, 3], params, RequestOptions())
        deltas = serving.deltas(generation)
        assert (await anext(deltas)).metrics is None
        generation.close()
        with pytest.raises(Overloaded):
            async for _ in deltas:
                pass


def test_an_idle_client_connects_anew(tiny_model_dir: Path) -> None:
    with running_server(tiny_model_dir, {"heartbeat_s": 0.1}) as server, Client(server.url) as client:
        for _ in range(2):
            events = list(client.generate([{"role": "user", "content": "x"}], {"max_tokens": 2}))
            assert events[-1]["type"] == "done"
            # No heartbeat is answered while nobody asks.
            time.sleep(1.0)


def test_an_empty_key_is_no_key() -> None:
    for keys in (("",), ("good", "  ")):
        with pytest.raises(ConfigError, match="--api-key is empty"):
            ServerSettings(api_keys=keys)


async def test_a_client_is_the_tenant_that_it_has_proved_to_be(tiny_model_dir: Path) -> None:
    """A wrong key in the handshake beside a right one in hello makes no new tenant."""
    with running_server(tiny_model_dir, {"api_keys": ("alpha", "beta")}, isolate_tenants=True) as server:
        cached = []
        for number, header in enumerate(("Bearer junk", "Bearer other junk", "Bearer beta")):
            hello = {**HELLO, "token": "alpha"}
            socket = await opened(server, hello, additional_headers={"Authorization": header})
            assert (await receive(socket))["type"] == "ready"
            request = {"type": "generate", "id": id_of(number), "prompt": [7] * 40}
            await send(socket, {**request, "sampling": {"max_tokens": 2}})
            while (event := await receive(socket))["type"] != "done":
                assert event["type"] != "error", event
            cached.append(event["usage"]["cached_tokens"])
            await socket.close()
        assert cached == [0, 32, 0]


def test_logprobs_name_the_chosen_token_and_count_characters() -> None:
    """D12: the most likely tokens, plus the chosen one if it is not among them."""
    token_bytes = [b"a", b"b", b"\xe6\x97", b"\xa5", b"!"]
    entries = [
        SimpleNamespace(token_id=2, logprob=-1.5, top=[(3, -0.5), (0, -1.0)]),
        SimpleNamespace(token_id=3, logprob=-0.1, top=[(3, -0.1)]),
        SimpleNamespace(token_id=4, logprob=-0.2, top=[]),
    ]
    fields = completion_logprobs(entries, token_bytes, text_offset=10)  # type: ignore[arg-type]
    assert fields["tokens"] == ["bytes:\\xe6\\x97", "bytes:\\xa5", "!"]
    assert fields["top_logprobs"] == [
        {"bytes:\\xa5": -0.5, "a": -1.0, "bytes:\\xe6\\x97": -1.5},
        {"bytes:\\xa5": -0.1},
        {"!": -0.2},
    ]
    assert fields["text_offset"] == [10, 10, 11]
