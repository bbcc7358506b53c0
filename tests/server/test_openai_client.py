"""The `openai` package's usual calls against the real server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import openai
import pytest

if TYPE_CHECKING:
    from conftest import RunningServer

MESSAGES = [{"role": "user", "content": "hello there"}]
ENDLESS = {"ignore_eos": True}


@pytest.fixture
def client(server: RunningServer) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)


def test_models(client: openai.OpenAI) -> None:
    [model] = client.models.list().data
    assert model.id == "tiny"
    assert client.models.retrieve("tiny").id == "tiny"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("other")


def test_chat_whole_and_streamed_are_the_same(client: openai.OpenAI) -> None:
    settings = {"model": "tiny", "messages": MESSAGES, "max_tokens": 20, "seed": 7, "extra_body": ENDLESS}
    whole = client.chat.completions.create(**settings)  # type: ignore[call-overload]
    answer = whole.choices[0]
    assert answer.finish_reason == "length"
    assert whole.usage.completion_tokens == 20
    assert whole.usage.total_tokens == whole.usage.prompt_tokens + 20
    assert whole.pagurid["timing"]["ttft_ms"] > 0
    assert whole.pagurid["timing"]["tokens_per_second"] > 0
    assert whole.pagurid["timing"]["kv_cache_peak_bytes"] > 0
    assert whole.pagurid["cost"] > 0
    assert whole.pagurid["cost_per_1k_tokens"] > 0

    stream = client.chat.completions.create(  # type: ignore[call-overload]
        **settings, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    assert chunks[0].choices[0].delta.role == "assistant"
    texts = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
    assert "".join(texts) == answer.message.content
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "length"
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens == 20
    assert len({chunk.id for chunk in chunks}) == 1


def test_several_choices_differ_and_repeat(client: openai.OpenAI) -> None:
    settings = {
        "model": "tiny",
        "messages": MESSAGES,
        "n": 3,
        "max_tokens": 12,
        "seed": 1,
        "extra_body": ENDLESS,
    }
    first = client.chat.completions.create(**settings)  # type: ignore[call-overload]
    texts = [choice.message.content for choice in first.choices]
    assert [choice.index for choice in first.choices] == [0, 1, 2]
    assert len(set(texts)) == 3
    assert first.usage.completion_tokens == 36
    streamed = ["", "", ""]
    for chunk in client.chat.completions.create(**settings, stream=True):  # type: ignore[call-overload]
        for choice in chunk.choices:
            streamed[choice.index] += choice.delta.content or ""
    assert streamed == texts


def test_stop_ends_the_text_before_it(client: openai.OpenAI) -> None:
    settings = {
        "model": "tiny",
        "messages": MESSAGES,
        "max_tokens": 40,
        "temperature": 0,
        "extra_body": ENDLESS,
    }
    text = client.chat.completions.create(**settings).choices[0].message.content  # type: ignore[call-overload]
    stop = text[6:9]
    stopped = client.chat.completions.create(**settings, stop=[stop]).choices[0]  # type: ignore[call-overload]
    assert stopped.message.content == text[: text.index(stop)]
    assert stopped.finish_reason == "stop"


@pytest.mark.parametrize("stream", [False, True])
def test_chat_logprobs(client: openai.OpenAI, stream: bool) -> None:
    """D12: finite, with bytes, best first, streamed too."""
    settings = {
        "model": "tiny",
        "messages": MESSAGES,
        "max_tokens": 6,
        "temperature": 0,
        "logprobs": True,
        "top_logprobs": 3,
        "extra_body": ENDLESS,
    }
    if stream:
        chunks = client.chat.completions.create(**settings, stream=True)  # type: ignore[call-overload]
        parts = [choice.logprobs for chunk in chunks for choice in chunk.choices if choice.logprobs]
        content = [entry for part in parts for entry in part.content]
    else:
        content = client.chat.completions.create(**settings).choices[0].logprobs.content  # type: ignore[call-overload]
    assert len(content) == 6
    for entry in content:
        assert len(entry.top_logprobs) == 3
        assert entry.top_logprobs[0].logprob == entry.logprob
        assert entry.bytes == entry.top_logprobs[0].bytes
        assert -100 < entry.logprob <= 0


def test_completions_of_every_kind_of_prompt(client: openai.OpenAI, server: RunningServer) -> None:
    ids = server.llm.tokenizer.encode("hello", add_special_tokens=True)
    settings = {"model": "tiny", "max_tokens": 5, "temperature": 0, "extra_body": ENDLESS}
    texts = []
    for prompt in ("hello", ["hello"], ids, [ids]):
        [choice] = client.completions.create(prompt=prompt, **settings).choices  # type: ignore[call-overload]
        texts.append(choice.text)
    assert len(set(texts)) == 1
    two = client.completions.create(prompt=["hello", "other"], n=2, **settings)  # type: ignore[call-overload]
    assert [choice.index for choice in two.choices] == [0, 1, 2, 3]
    assert [choice.text for choice in two.choices][:2] == texts[:2]
    echoed = client.completions.create(prompt=ids, echo=True, **settings)  # type: ignore[call-overload]
    assert echoed.choices[0].text == "hello" + texts[0]
    streamed = client.completions.create(prompt="hello", stream=True, **settings)  # type: ignore[call-overload]
    assert "".join(chunk.choices[0].text for chunk in streamed) == texts[0]


def test_completion_logprobs(client: openai.OpenAI) -> None:
    answer = client.completions.create(
        model="tiny", prompt="hello", max_tokens=4, temperature=0, logprobs=2, extra_body=ENDLESS
    )
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert len(logprobs.tokens or []) == len(logprobs.token_logprobs or []) == 4
    assert logprobs.text_offset == sorted(logprobs.text_offset or [])


def test_the_same_prompt_again_hits_the_cache(client: openai.OpenAI) -> None:
    prompt = [7] * 65
    for expected in (0, 64):
        answer = client.completions.create(model="tiny", prompt=prompt, max_tokens=1)
        assert answer.usage is not None
        assert answer.usage.prompt_tokens_details is not None
        assert answer.usage.prompt_tokens_details.cached_tokens == expected


def test_an_error_is_the_clients_own_kind(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="tiny", messages=MESSAGES, temperature=-1)  # type: ignore[arg-type]
    assert caught.value.code == "invalid_request"
    assert caught.value.param == "temperature"
