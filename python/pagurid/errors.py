"""The one table of errors: wire code ↔ HTTP status ↔ Python class ↔ the Rust enum.

Owns: every error a user of Pagurid can meet. The Rust core raises these classes by wire code,
the server turns them into HTTP answers and WebSocket `error` frames, so the words are the same
wherever a person meets them. A test holds the Rust side (`_core.error_table()`) to this one.
Must not know: transports, the engine, torch.
"""

from __future__ import annotations

from typing import Any, ClassVar

__all__ = [
    "ERRORS",
    "ConfigError",
    "ContextLengthExceeded",
    "EpochChanged",
    "Forbidden",
    "IdInUse",
    "InternalError",
    "InvalidRequest",
    "ModelLoadError",
    "ModelNotFound",
    "Overloaded",
    "PaguridError",
    "QueueFull",
    "RateLimited",
    "RequestTimeout",
    "StreamNotFound",
    "Unauthorized",
]


class PaguridError(Exception):
    """Base of all errors that reach a user.

    `message` states what was expected and what came, with the real numbers. `param` names the
    field at fault, `retry_after_ms` is a hint for errors that pass, `details` are further facts
    for programs.
    """

    code: ClassVar[str] = "internal"
    http_status: ClassVar[int] = 500
    retryable: ClassVar[bool] = False

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        retry_after_ms: int | None = None,
        details: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.retry_after_ms = retry_after_ms
        self.details = details


class InvalidRequest(PaguridError, ValueError):
    """A field is missing, of the wrong type, or outside its limits."""

    code = "invalid_request"
    http_status = 400


class Unauthorized(PaguridError):
    """No key, or a wrong one."""

    code = "unauthorized"
    http_status = 401


class Forbidden(PaguridError):
    """The key, origin or host may not do this."""

    code = "forbidden"
    http_status = 403


class ModelNotFound(PaguridError):
    """The request names a model that this server does not serve."""

    code = "model_not_found"
    http_status = 404


class ContextLengthExceeded(InvalidRequest):
    """Prompt plus answer cannot fit the model's context or the KV pool."""

    code = "context_length_exceeded"
    http_status = 400


class IdInUse(PaguridError):
    """A generation of this id is still running."""

    code = "id_in_use"
    http_status = 409


class QueueFull(PaguridError):
    """The request queue holds as many requests as it may."""

    code = "queue_full"
    http_status = 429
    retryable = True


class RateLimited(PaguridError):
    """This client sends more than it may."""

    code = "rate_limited"
    http_status = 429
    retryable = True


class Overloaded(PaguridError):
    """The server cannot take work now: it is draining, or its engine has stopped."""

    code = "overloaded"
    http_status = 503
    retryable = True


class RequestTimeout(PaguridError):
    """The request took longer than its limit."""

    code = "timeout"
    http_status = 504
    retryable = True


class StreamNotFound(PaguridError):
    """There is no generation of this id to resume."""

    code = "stream_not_found"
    http_status = 404


class EpochChanged(PaguridError):
    """The server was restarted since the client's stream began."""

    code = "epoch_changed"
    http_status = 409


class InternalError(PaguridError):
    """Our fault: a step failed, or an invariant does not hold."""

    code = "internal"
    http_status = 500


ERRORS: dict[str, type[PaguridError]] = {
    error.code: error
    for error in (
        InvalidRequest,
        Unauthorized,
        Forbidden,
        ModelNotFound,
        ContextLengthExceeded,
        IdInUse,
        QueueFull,
        RateLimited,
        Overloaded,
        RequestTimeout,
        StreamNotFound,
        EpochChanged,
        InternalError,
    )
}
"""Wire code → class, in the order of the table in the design."""


class ConfigError(Exception):
    """The server cannot start as it is configured. The command line prints it as one line.

    Not a wire error: it is met before there is a wire.
    """


class ModelLoadError(ConfigError):
    """The model cannot be loaded: a file is missing, broken, or of an unsupported kind.

    The message names the file and the tensor or key at fault, and says what to do.
    """
