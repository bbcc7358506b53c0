"""A request's body within its limit, and noticing that its client is gone.

Must not know: what the bodies mean.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from pagurid.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from starlette.requests import Request

__all__ = ["ClientGoneError", "read_body", "unless_client_leaves"]

T = TypeVar("T")


class ClientGoneError(Exception):
    """There is nobody left to answer."""


async def read_body(request: Request, max_bytes: int) -> bytes:
    """The whole body. Raises InvalidRequest as soon as it is too large."""
    parts = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > max_bytes:
            raise InvalidRequest(f"expected a body of at most {max_bytes} bytes, got more")
        parts.append(part)
    return b"".join(parts)


async def unless_client_leaves(request: Request, work: Coroutine[None, None, T]) -> T:
    """Does the work; cancels it and raises ClientGoneError when the client closes the connection first."""

    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    task, leaving = asyncio.create_task(work), asyncio.create_task(gone())
    try:
        await asyncio.wait((task, leaving), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise ClientGoneError
    finally:
        for each in (task, leaving):
            each.cancel()
        await asyncio.gather(task, leaving, return_exceptions=True)
