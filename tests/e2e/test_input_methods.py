"""D36: the Enter that confirms a candidate of an input method never sends."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from chat_page import ChatPage
from playwright.sync_api import expect
from scripted_server import ScriptedServer

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Locator, Page

KEYDOWN = """(box, more) => box.dispatchEvent(
    new KeyboardEvent('keydown', { key: 'Enter', bubbles: true, cancelable: true, ...more }))"""
COMPOSITION = "(box, type) => box.dispatchEvent(new CompositionEvent(type, { bubbles: true, data: '日本' }))"


def confirm_as_chrome(box: Locator) -> None:
    box.evaluate(COMPOSITION, "compositionstart")
    box.evaluate(KEYDOWN, {"isComposing": True, "keyCode": 229})
    box.evaluate(COMPOSITION, "compositionend")


def confirm_as_firefox(box: Locator) -> None:
    box.evaluate(COMPOSITION, "compositionstart")
    box.evaluate(KEYDOWN, {"isComposing": True, "keyCode": 13})
    box.evaluate(COMPOSITION, "compositionend")


def confirm_as_safari(box: Locator) -> None:
    box.evaluate(COMPOSITION, "compositionstart")
    box.evaluate(COMPOSITION, "compositionend")
    box.evaluate(KEYDOWN, {"isComposing": False, "keyCode": 229})


CONFIRM = [confirm_as_chrome, confirm_as_firefox, confirm_as_safari]


@pytest.fixture
def scripted() -> ScriptedServer:
    return ScriptedServer(lambda reply, _request: reply.answer("はい。"))


@pytest.fixture
def chat(open_page: Callable[..., Page], scripted: ScriptedServer) -> ChatPage:
    return ChatPage(open_page(before=scripted.install))


@pytest.mark.parametrize("confirm", CONFIRM)
def test_composer(chat: ChatPage, confirm: Callable[[Locator], None]) -> None:
    """D36: in the composer; a plain Enter after it sends."""
    chat.composer.fill("日本")
    confirm(chat.composer)
    expect(chat.questions).to_have_count(0)
    expect(chat.composer).to_have_value("日本")
    chat.composer.press("Enter")
    expect(chat.questions).to_have_count(1)
    expect(chat.composer).to_have_value("")


@pytest.mark.parametrize("confirm", CONFIRM)
def test_edit_box(chat: ChatPage, scripted: ScriptedServer, confirm: Callable[[Locator], None]) -> None:
    """D36: in the box a message is edited in."""
    chat.ask("最初")
    expect(chat.send).to_be_visible()
    chat.questions.first.hover()
    chat.page.get_by_role("button", name="Edit and send again").click()
    box = chat.page.get_by_label("Edit your message")
    box.fill("日本")
    confirm(box)
    expect(box).to_be_visible()
    box.press("Enter")
    expect(box).to_have_count(0)
    assert [
        frame["messages"][-1]["content"] for frame in scripted.received if frame["type"] == "generate"
    ] == [
        "最初",
        "日本",
    ]


@pytest.mark.parametrize("confirm", CONFIRM)
def test_title_box(chat: ChatPage, confirm: Callable[[Locator], None]) -> None:
    """D36: in the box a chat is named in."""
    chat.ask("最初")
    expect(chat.send).to_be_visible()
    chat.page.get_by_label("Rename “最初”").click()
    box = chat.page.get_by_label("Title of the chat")
    box.fill("日本")
    confirm(box)
    expect(box).to_be_visible()
    box.press("Enter")
    expect(chat.chats.first).to_contain_text("日本")


def test_shift_enter_makes_a_line(chat: ChatPage) -> None:
    """D36: Shift+Enter is a new line, in the composer as it grows."""
    height = chat.composer.bounding_box()
    chat.composer.press_sequentially("one")
    for word in ("two", "three", "four"):
        chat.composer.press("Shift+Enter")
        chat.composer.press_sequentially(word)
    expect(chat.composer).to_have_value("one\ntwo\nthree\nfour")
    expect(chat.questions).to_have_count(0)
    grown = chat.composer.bounding_box()
    assert height is not None
    assert grown is not None
    assert grown["height"] > height["height"] + 40
    chat.composer.press("Enter")
    expect(chat.questions.first).to_contain_text("one\ntwo\nthree\nfour", use_inner_text=True)
