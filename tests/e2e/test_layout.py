"""The page fits: wide and narrow, light and dark, by keyboard and for a screen reader, and stays at home."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from chat_page import ChatPage
from playwright.sync_api import expect
from scripted_server import Reply, ScriptedServer
from server_process import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Page

AXE = ROOT / "web" / "node_modules" / "axe-core" / "axe.min.js"
LONG_LINE = "a_very_long_identifier_without_any_break = " + " + ".join(f"term_{n}" for n in range(40))
RICH = f"""# Shells

Text with `inline_code` and a very long word: {"shell" * 40}.

```python
{LONG_LINE}
```

| Shell | Weight | Room | For whom | Found where | Remarks |
|---|--:|--:|---|---|---|
| Periwinkle | 2.1 g | 3 ml | the young | everywhere on the beach | {"many words " * 8} |

> A quote.

1. One
2. Two with https://example.org/{"long/" * 30}
"""


def rich(reply: Reply, _request: dict[str, Any]) -> None:
    reply.answer(RICH, 40)


def open_rich(open_page: Callable[..., Page], **options: object) -> ChatPage:
    chat = ChatPage(open_page(before=ScriptedServer(rich).install, **options))
    chat.ask("Everything about shells, please. " + "word " * 60)
    expect(chat.send).to_be_visible()
    chat.answers.first.get_by_role("button", name="Figures of this answer").click()
    return chat


def overflow_px(page: Page) -> int:
    return int(page.evaluate("document.documentElement.scrollWidth - innerWidth"))


def test_narrow_page_never_scrolls_sideways(open_page: Callable[..., Page]) -> None:
    page = open_page(narrow=True)
    assert overflow_px(page) <= 0
    chat = open_rich(open_page, narrow=True)
    page = chat.page
    assert overflow_px(page) <= 0
    assert page.evaluate("(v => v.scrollWidth - v.clientWidth)(document.querySelector('.view'))") <= 0
    page.get_by_label("Settings of this chat").click()
    expect(page.get_by_label("System prompt")).to_be_in_viewport()
    assert overflow_px(page) <= 0
    page.keyboard.press("Escape")
    expect(page.get_by_label("System prompt")).to_have_count(0)
    page.get_by_role("button", name="Chats", exact=True).click()
    expect(page.get_by_role("link", name="New chat")).to_be_in_viewport()
    assert overflow_px(page) <= 0
    page.get_by_role("link", name="New chat").click()
    expect(page.get_by_role("link", name="New chat")).not_to_be_in_viewport()
    expect(chat.composer).to_be_in_viewport()


def test_a_drawer_takes_the_focus_and_gives_it_back(open_page: Callable[..., Page]) -> None:
    page = open_page(narrow=True)
    for opener, inside in (("Chats", "Close the list of chats"), ("Settings of this chat", "Close settings")):
        button = page.get_by_role("button", name=opener, exact=True)
        button.press("Enter")
        expect(page.get_by_role("button", name=inside)).to_be_focused()
        # The chat under it is out of reach.
        expect(page.locator("main")).to_have_attribute("inert", "")
        page.keyboard.press("Escape")
        expect(button).to_be_focused()


def test_dark_follows_the_system_and_the_choice_is_kept(open_page: Callable[..., Page]) -> None:
    paper = "getComputedStyle(document.documentElement).backgroundColor"
    light, dark = (open_page(color_scheme=scheme) for scheme in ("light", "dark"))
    assert light.evaluate(paper) != dark.evaluate(paper)
    light.get_by_text("Dark", exact=True).locator("..").click()
    assert light.evaluate(paper) == dark.evaluate(paper)
    light.reload()
    assert light.evaluate(paper) == dark.evaluate(paper)


@pytest.mark.parametrize("narrow", [False, True], ids=["wide", "narrow"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(open_page: Callable[..., Page], scheme: str, narrow: bool) -> None:
    def violations(page: Page) -> list[str]:
        # Once the arrival of the empty page is over: a half transparent text has no contrast.
        page.evaluate("Promise.all(document.getAnimations().map(animation => animation.finished))")
        page.evaluate(AXE.read_text(encoding="utf-8"))
        found = page.evaluate("axe.run({resultTypes: ['violations']})")["violations"]
        return [
            f"{rule['id']}: {json.dumps([node['html'] for node in rule['nodes']])[:400]}"
            for rule in found
            if rule["impact"] in {"serious", "critical"}
        ]

    page = open_page(narrow=narrow, color_scheme=scheme)
    expect(page.get_by_text("Make yourself at home.")).to_be_visible()
    assert violations(page) == []
    chat = open_rich(open_page, narrow=narrow, color_scheme=scheme)
    assert violations(chat.page) == []
    chat.page.get_by_label("Settings of this chat").click()
    assert violations(chat.page) == []


def test_everything_can_be_done_with_the_keyboard(open_page: Callable[..., Page]) -> None:
    chat = ChatPage(open_page(before=ScriptedServer(rich).install))
    page = chat.page
    expect(chat.composer).to_be_focused()
    page.keyboard.type("By keys alone.")
    page.keyboard.press("Enter")
    expect(chat.send).to_be_visible()
    page.get_by_role("link", name="New chat").focus()
    reached = []
    for _ in range(40):
        page.keyboard.press("Tab")
        reached.append(
            page.evaluate(
                "document.activeElement.getAttribute('aria-label') ?? document.activeElement.innerText"
            )
        )
    for name in (
        "Search chats",
        "Rename “By keys alone.”",
        "Delete “By keys alone.”",
        "Settings of this chat",
        "Edit and send again",
        "Copy code",
        "Code",
        "Table",
        "Copy answer",
        "Answer again",
        "Message",
    ):
        assert name in reached


def test_reading_up_is_not_fought_and_latest_is_one_press_away(open_page: Callable[..., Page]) -> None:
    held: list[Reply] = []

    def slow(reply: Reply, _request: dict[str, Any]) -> None:
        reply.accept()
        reply.delta("A line.\n\n" * 80)
        held.append(reply)

    chat = ChatPage(open_page(before=ScriptedServer(slow).install))
    page = chat.page
    answer = chat.ask("A long answer.")
    chat.wait_for_text(answer, more_than=500)
    from_end = "(v => v.scrollHeight - v.scrollTop - v.clientHeight)(document.querySelector('.view'))"
    page.wait_for_function(f"() => {from_end} < 2")
    chat.view.hover()
    page.mouse.wheel(0, -600)
    latest = page.get_by_role("button", name="Jump to latest")
    expect(latest).to_be_visible()
    page.wait_for_function(f"() => {from_end} >= 600")
    top = page.evaluate("document.querySelector('.view').scrollTop")
    held[0].delta("More.\n\n" * 40)
    page.wait_for_function(f"() => {from_end} > 1500")
    assert page.evaluate("document.querySelector('.view').scrollTop") == top
    latest.click()
    page.wait_for_function(f"() => {from_end} < 2")
    expect(latest).to_have_count(0)
    held[0].delta("And on.\n\n" * 20)
    expect(answer).to_contain_text("And on.")
    page.wait_for_function(f"() => {from_end} < 2")
    held[0].done()


def test_less_motion_is_respected(open_page: Callable[..., Page]) -> None:
    page = open_page(reduced_motion="reduce")
    expect(page.get_by_text("Make yourself at home.")).to_be_visible()
    durations = page.evaluate(
        "[...document.querySelectorAll('*')].map(e => parseFloat(getComputedStyle(e).animationDuration) || 0)"
    )
    assert max(durations) < 0.001
