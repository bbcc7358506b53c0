"""pagurid.v1 without sockets: frames and the clock in, actions out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pagurid.errors import ERRORS, QueueFull
from pagurid.server.protocol import (
    CancelGeneration,
    Close,
    CloseCode,
    Send,
    Session,
    SessionSettings,
    StartGeneration,
    encode,
)

ID = "generation-000001"
VECTORS = Path(__file__).parents[1] / "vectors"


def session(*, ready: bool = True, **settings: Any) -> Session:
    given = SessionSettings(**{"epoch": "e1", "server_version": "0", "models": {"tiny": 512}, **settings})
    made = Session(given, now=0.0)
    if ready:
        [action] = made.receive('{"type": "hello", "protocol": 1}', 0.0)
        assert isinstance(action, Send)
        assert action.event["type"] == "ready"
    return made


def generate(id: str = ID, **fields: Any) -> str:
    return json.dumps({"type": "generate", "id": id, "prompt": "x", **fields})


def error_of(actions: list[Any]) -> dict[str, Any]:
    [action] = actions
    assert isinstance(action, Send)
    assert action.event["type"] == "error"
    return action.event


def code_of(actions: list[Any]) -> CloseCode:
    [action] = actions
    assert isinstance(action, Close)
    return action.code


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        ('{"type": "ping"}', CloseCode.MALFORMED),
        ('{"type": "hello"}', CloseCode.MALFORMED),
        ('{"type": "hello", "protocol": "1"}', CloseCode.MALFORMED),
        ('{"type": "hello", "protocol": true}', CloseCode.MALFORMED),
        ('{"type": "hello", "protocol": 2}', CloseCode.PROTOCOL_VERSION),
        ("", CloseCode.MALFORMED),
        ("null", CloseCode.MALFORMED),
        (b"{}", CloseCode.BINARY_FRAME),
    ],
)
def test_the_first_frame_is_a_good_hello(frame: str | bytes, code: CloseCode) -> None:
    made = session(ready=False)
    assert code_of(made.receive(frame, 0.1)) is code
    assert made.receive('{"type": "hello", "protocol": 1}', 0.2) == []


def test_hello_is_due_within_five_seconds() -> None:
    made = session(ready=False)
    assert made.poll(4.9) == []
    assert code_of(made.poll(5.0)) is CloseCode.HELLO_TOO_LATE


def test_a_token_is_checked() -> None:
    made = session(ready=False, check_token=lambda token: token == "good")
    assert (
        code_of(made.receive('{"type": "hello", "protocol": 1, "token": "bad"}', 0)) is CloseCode.UNAUTHORIZED
    )
    good = session(ready=False, check_token=lambda token: token == "good")
    good.receive('{"type": "hello", "protocol": 1, "token": "good"}', 0)
    assert good.is_ready


def test_a_second_hello_ends_the_socket() -> None:
    assert code_of(session().receive('{"type": "hello", "protocol": 1}', 1)) is CloseCode.SECOND_HELLO


@pytest.mark.parametrize(
    "id", ["", "short", "x" * 65, "with space 123456", "ümlaut-0123456789", 5, None, ["x"]]
)
def test_bad_ids_begin_nothing(id: Any) -> None:
    event = error_of(session().receive(json.dumps({"type": "generate", "id": id, "prompt": "x"}), 1))
    assert (event["code"], event["param"]) == ("invalid_request", "id")
    assert "id" not in event


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": [{"role": "user", "content": "x"}]}, "messages"),
        ({"prompt": None}, "messages"),
        ({"prompt": None, "messages": []}, "messages"),
        ({"sampling": {"n": "2"}}, "sampling.n"),
        ({"sampling": {"temperature": True}}, "sampling.temperature"),
        ({"sampling": {"max_tokens": 1.5}}, "sampling.max_tokens"),
        ({"sampling": {"top_logprobs": 21}}, "sampling.top_logprobs"),
        ({"tools": [{}]}, "tools"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"priority": "1"}, "priority"),
        ({"priority": 2**31}, "priority"),
        ({"on_disconnect": "keep"}, "on_disconnect"),
        ({"on_disconnect": "other"}, "on_disconnect"),
        ({"stream": {"token_ids": 1}}, "stream.token_ids"),
    ],
)
def test_bad_fields_are_named(fields: dict[str, Any], param: str) -> None:
    made = session()
    event = error_of(made.receive(generate(**fields), 1))
    assert (event["code"], event["param"], event["id"], event["seq"]) == ("invalid_request", param, ID, 0)
    assert made.live_ids == frozenset()
    assert isinstance(made.receive(generate(), 1)[0], StartGeneration)


def test_unknown_types_and_fields() -> None:
    made = session()
    assert error_of(made.receive('{"type": "dance"}', 1))["code"] == "unknown_type"
    assert isinstance(made.receive(generate(colour="red"), 1)[0], StartGeneration)
    assert made.receive('{"type": "ack", "id": "x", "seq": 1}', 1) == []
    assert error_of(made.receive('{"type": "resume", "id": "x"}', 1))["code"] == "stream_not_found"


def test_an_unpaired_surrogate_is_refused_by_name() -> None:
    """D26"""
    made = session()
    event = error_of(made.receive(rf'{{"type": "generate", "id": "{ID}", "prompt": "x \ud83d"}}', 1))
    assert (event["code"], event["id"]) == ("invalid_request", ID)
    encode(event)
    assert made.is_ready


def test_seq_is_gapless_and_the_end_is_the_end() -> None:
    made = session()
    made.receive(generate(), 1)
    events = [
        made.accepted(ID, model="tiny", prompt_tokens=3, max_tokens=9, now=1.0),
        made.status(ID, {"state": "queued", "position": 0}, 2.0),
        made.delta(ID, text="né", fields={"index": 0, "n": 1}, now=2.1),
        made.delta(ID, text="🙂", fields={"index": 0, "n": 2}, now=2.2),
        made.finished(ID, {"finish_reason": "stop"}, 2.3),
    ]
    assert [event["seq"] for event in events if event] == [0, 1, 2, 3, 4]
    assert events[-1] is not None
    assert events[-1]["chars"] == 3
    assert made.live_ids == frozenset()
    assert made.receive(f'{{"type": "cancel", "id": "{ID}"}}', 3) == []
    assert isinstance(made.receive(generate(), 4)[0], StartGeneration)
    assert made.failed(ID, QueueFull("full", retry_after_ms=5))["seq"] == 0


def test_cancel_is_idempotent_and_hits_only_its_own() -> None:
    made = session()
    made.receive(generate(), 1)
    cancel = f'{{"type": "cancel", "id": "{ID}"}}'
    assert made.receive(cancel, 1) == made.receive(cancel, 1) == [CancelGeneration(ID)]
    assert made.receive('{"type": "cancel", "id": "another-0123456789"}', 1) == []


def test_status_is_said_at_most_four_times_a_second_and_only_when_new() -> None:
    made = session()
    made.receive(generate(), 0)
    made.accepted(ID, model="tiny", prompt_tokens=3, max_tokens=9, now=0.0)
    said = []
    for tick in range(1, 41):
        event = made.status(ID, {"state": "prefill", "done": tick, "total": 99}, tick / 20)
        if event:
            said.append(tick)
    assert said == [5, 10, 15, 20, 25, 30, 35, 40]
    assert made.status(ID, {"state": "prefill", "done": 40, "total": 99}, 9.0) is None


def test_too_many_generations_and_too_many_frames() -> None:
    made = session(max_streams=2)
    for number in range(2):
        made.receive(generate(f"generation-00000{number}"), 1)
    assert error_of(made.receive(generate("generation-000009"), 1))["code"] == "rate_limited"
    flooded = session()
    codes = [action for _ in range(1100) for action in flooded.receive('{"type": "pong"}', 1.0)]
    assert code_of(codes) is CloseCode.MESSAGE_RATE
    calm = session()
    assert [a for tick in range(3000) for a in calm.receive('{"type": "pong"}', tick / 99)] == []


def test_heartbeats() -> None:
    made = session(heartbeat_s=10.0)
    assert made.poll(9.9) == []
    [ping] = made.poll(10.0)
    assert isinstance(ping, Send)
    assert ping.event["type"] == "ping"
    assert made.poll(10.1) == []
    made.receive('{"type": "pong", "t": 1}', 11.0)
    assert made.poll(20.9) == []
    assert len(made.poll(21.0)) == 1
    assert code_of(made.poll(36.0)) is CloseCode.HEARTBEAT_MISSED


def test_going_away_refuses_new_work_only() -> None:
    made = session()
    made.receive(generate(), 1)
    [notice] = made.going_away("shutdown", 2000)
    assert isinstance(notice, Send)
    assert notice.event == {"type": "going_away", "reason": "shutdown", "reconnect_after_ms": 2000}
    assert error_of(made.receive(generate("generation-000002"), 2))["code"] == "overloaded"
    assert made.delta(ID, text="x", fields={}, now=3)["seq"] == 0


def test_frames_are_measured_in_bytes() -> None:
    made = session(max_frame_bytes=200)
    assert code_of(made.receive(generate(prompt="é" * 100), 1)) is CloseCode.FRAME_TOO_LARGE


def test_every_error_has_its_frame() -> None:
    for code, kind in ERRORS.items():
        made = session()
        made.receive(generate(), 1)
        event = made.failed(ID, kind("what was expected", param="p"))
        assert (event["code"], event["message"], event["param"]) == (code, "what was expected", "p")
        assert event["retryable"] is kind.retryable


@pytest.mark.parametrize("file", sorted(VECTORS.glob("protocol_*.jsonl")), ids=lambda file: file.stem)
def test_golden_transcripts(file: Path) -> None:
    """The same files are read by the page's tests, so that both ends are held to the same words."""
    made = session(ready=False)
    said: list[dict[str, Any]] = []
    for line in file.read_text().splitlines():
        step = json.loads(line)
        match step:
            case {"client": frame}:
                assert said == []
                for action in made.receive(json.dumps(frame), step["at"]):
                    if isinstance(action, Send):
                        said.append(json.loads(encode(action.event)))
            case {"engine": call, **rest}:
                assert said == []
                said.append(
                    json.loads(encode(getattr(made, call)(*rest["args"], **rest["kwargs"], now=step["at"])))
                )
            case {"server": event}:
                assert said.pop(0) == event
    assert said == []
