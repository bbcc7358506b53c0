"""What a client may say in pagurid.v1, as strict types.

Owns: the shapes of client frames and the checks that need no server state. Unknown fields are ignored, as the
protocol promises; a wrong type is an InvalidRequest that names the field.
Must not know: sockets, the engine.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from pagurid.errors import InvalidRequest, PaguridError
from pagurid.server.json_decoding import decode_json
from pagurid.server.request_checks import check_logprobs, check_messages, check_text_answer
from pagurid.server.sampling_fields import Count, SamplingFields

__all__ = [
    "Cancel",
    "Envelope",
    "Generate",
    "Hello",
    "Ping",
    "SamplingObject",
    "StreamOptions",
    "decode_generate",
    "id_problem",
]

MIN_ID_CHARS, MAX_ID_CHARS = 16, 64
_ID_CHARS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")


class Envelope(msgspec.Struct):
    """The part that every frame has; `id` stays untyped so that an error can name a broken frame's id."""

    type: str
    id: Any = None


class ClientInfo(msgspec.Struct):
    """Who connects, for logs only."""

    name: str = ""
    version: str = ""


class Hello(msgspec.Struct):
    """The first frame."""

    protocol: int
    token: str | None = None
    client: ClientInfo | None = None


class Cancel(msgspec.Struct):
    """Ends a generation; unknown or finished ids are no error."""

    id: str


class Ping(msgspec.Struct):
    """A sign of life; `t` comes back."""

    t: Any = None


class SamplingObject(SamplingFields, kw_only=True):
    """`generate.sampling`: the common fields, and log-probabilities as the chat API names them."""

    logprobs: bool | None = None
    top_logprobs: int | None = None


class StreamOptions(msgspec.Struct, kw_only=True):
    """What deltas carry beside text."""

    token_ids: bool = False
    logprobs: bool = False


class Generate(msgspec.Struct, kw_only=True):
    """One generation. Exactly one of `messages` and `prompt` is given."""

    id: str
    messages: list[dict[str, Any]] | None = None
    prompt: str | list[int] | None = None
    model: str | None = None
    sampling: SamplingObject = msgspec.field(default_factory=SamplingObject)
    response_format: dict[str, Any] | None = None
    tools: list[Any] | None = None
    user: str | None = None
    priority: Count | None = None
    cache_salt: str | None = None
    on_disconnect: Literal["cancel", "keep"] = "cancel"
    stream: StreamOptions = msgspec.field(default_factory=StreamOptions)

    @property
    def logprobs(self) -> int | None:
        """Top log-probabilities wanted per token; None for none at all, 0 for the chosen one's only."""
        if self.sampling.top_logprobs is not None:
            return self.sampling.top_logprobs
        return 0 if self.sampling.logprobs or self.stream.logprobs else None

    def check(self) -> None:
        """Raises InvalidRequest for what is well typed but makes no sense or is not there yet."""
        if (self.messages is None) == (self.prompt is None):
            raise InvalidRequest("expected exactly one of messages and prompt", param="messages")
        if self.messages is not None:
            check_messages(self.messages)
        check_logprobs(self.sampling.top_logprobs, "sampling.top_logprobs")
        check_text_answer(self.response_format, self.tools)
        if self.on_disconnect == "keep":
            raise InvalidRequest('on_disconnect: this server only serves "cancel"', param="on_disconnect")


def id_problem(value: object) -> PaguridError | None:
    """What is wrong with a client's id, if anything."""
    expected = f"id: expected {MIN_ID_CHARS} to {MAX_ID_CHARS} characters of A-Z a-z 0-9 _ -"
    if not isinstance(value, str):
        return InvalidRequest(f"{expected}, got {type(value).__name__}", param="id")
    if not MIN_ID_CHARS <= len(value) <= MAX_ID_CHARS:
        return InvalidRequest(f"{expected}, got {len(value)} characters", param="id")
    if not _ID_CHARS.issuperset(value):
        return InvalidRequest(f"{expected}, got others", param="id")
    return None


def decode_generate(frame: str) -> Generate:
    """A `generate` frame, checked. Raises InvalidRequest."""
    generate = decode_json(frame, Generate)
    generate.check()
    return generate
