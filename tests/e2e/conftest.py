"""A real server with a tiny model, a real Chromium, and a page that is watched while it is driven."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from chromium import launch
from endless_model import make_endless_model
from playwright.sync_api import sync_playwright
from server_process import ROOT, serve

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from playwright.sync_api import Browser, BrowserContext, Page

STATIC = ROOT / "python" / "pagurid" / "server" / "static"
WIDE = {"width": 1280, "height": 800}
NARROW = {"width": 390, "height": 844}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Not for the whole session: while Playwright runs, no other event loop can run in this thread."""
    with sync_playwright() as playwright:
        started = launch(playwright)
        yield started
        started.close()


@pytest.fixture(scope="session")
def server_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server whose answers are long nonsense; `PAGURID_E2E_URL` names a running one instead."""
    running = os.environ.get("PAGURID_E2E_URL")
    if running:
        yield running.rstrip("/")
        return
    if not (STATIC / "index.html").exists():
        pytest.fail(f"the chat page is not built: {STATIC} is missing; run `make web`")
    folder = tmp_path_factory.mktemp("e2e")
    model = make_endless_model(folder / "model")
    with serve(model, folder / "server.log", "--cost-per-hour", "1.5", "--served-model-name", "tiny") as url:
        yield url


@pytest.fixture
def open_page(browser: Browser, server_url: str) -> Iterator[Callable[..., Page]]:
    """Opens pages, each in a browser of its own that has never been here.

    Whatever a page does, it may not throw, may not be refused by its own content security policy,
    and may not ask anyone but the server for anything.
    """
    contexts: list[BrowserContext] = []
    faults: list[str] = []

    def watch(page: Page) -> None:
        page.on("pageerror", lambda error: faults.append(f"threw: {error}"))
        page.on("dialog", lambda dialog: faults.append(f"dialog: {dialog.message}"))
        page.on(
            "console",
            lambda message: (
                faults.append(f"console: {message.text}") if "Content Security" in message.text else None
            ),
        )

    def at_home(url: str) -> bool:
        return url.startswith((server_url, server_url.replace("http", "ws", 1), "blob:"))

    def open_(
        *,
        narrow: bool = False,
        path: str = "/",
        before: Callable[[Page], None] | None = None,
        **options: object,
    ) -> Page:
        settings = {
            "viewport": NARROW if narrow else WIDE,
            "is_mobile": narrow,
            "has_touch": narrow,
            **options,
        }
        context = browser.new_context(**settings)  # type: ignore[arg-type]
        context.set_default_timeout(15_000)
        contexts.append(context)
        context.on(
            "request",
            lambda request: faults.append(f"left home: {request.url}") if not at_home(request.url) else None,
        )
        page = context.new_page()
        watch(page)
        if before is not None:
            before(page)
        page.goto(server_url + path)
        return page

    yield open_
    for context in contexts:
        context.close()
    assert faults == []
