"""How the server is set up, apart from the engine: one frozen dataclass.

Must not know: the engine, the web framework.
"""

from __future__ import annotations

from dataclasses import dataclass

from pagurid.errors import ConfigError

__all__ = ["ServerSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """Everything about doors and limits."""

    host: str = "127.0.0.1"
    port: int = 8000
    """0 takes a free one."""
    api_keys: tuple[str, ...] = ()
    """One of them is asked of every request under /v1, if there are any. Several are several tenants."""
    allowed_hosts: tuple[str, ...] = ()
    """Names this server answers to, beside loopback and `host`; `*` answers to all."""
    allowed_origins: tuple[str, ...] = ()
    """Web pages of other origins that may use this server, such as `https://app.example`."""
    grace_s: float = 5.0
    """How long running answers may go on after Ctrl-C."""
    max_body_bytes: int = 10 << 20
    max_frame_bytes: int = 1 << 20
    max_streams: int = 64
    """Generations at once on one WebSocket."""
    heartbeat_s: float = 20.0
    hello_timeout_s: float = 5.0

    def __post_init__(self) -> None:
        """Raises ConfigError for a key that would open the door to everybody."""
        if not all(key.strip() for key in self.api_keys):
            raise ConfigError("--api-key is empty: leave it out, or give a key that can't be guessed")
