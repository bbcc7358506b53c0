"""What a person sees while the server is busy, away, or asks for a key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from chat_page import ChatPage
from playwright.sync_api import expect
from scripted_server import Reply, ScriptedServer

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Page


def test_place_in_the_queue_and_prefill_are_told(open_page: Callable[..., Page]) -> None:
    held: list[Reply] = []

    def on_generate(reply: Reply, _request: dict[str, Any]) -> None:
        reply.accept()
        reply.say("status", state="queued", position=3, eta_ms=2100)
        held.append(reply)

    chat = ChatPage(open_page(before=ScriptedServer(on_generate).install))
    answer = chat.ask("Me too.")
    expect(answer.get_by_text("In the queue, 3 before you, about 3 s")).to_be_visible()
    held[0].say("status", state="prefill", done=512, total=2048)
    expect(answer.get_by_text("Reading the prompt, 512 of 2,048 tokens")).to_be_visible()
    expect(answer.get_by_role("progressbar")).to_be_visible()
    held[0].delta("At last.")
    expect(answer.get_by_role("progressbar")).to_have_count(0)
    held[0].say("status", state="preempted")
    expect(answer.get_by_text("Set aside")).to_be_visible()
    held[0].done()
    expect(answer.get_by_text("Set aside")).to_have_count(0)


def test_a_lost_connection_keeps_the_text_and_comes_back(open_page: Callable[..., Page]) -> None:
    tries: list[Reply] = []

    def on_generate(reply: Reply, _request: dict[str, Any]) -> None:
        tries.append(reply)
        if len(tries) > 1:
            reply.answer("Second try, whole.")
            return
        reply.accept()
        reply.delta("First try, half")
        reply.socket.close(code=1012, reason="restart")

    server = ScriptedServer(on_generate)
    chat = ChatPage(open_page(before=server.install))
    answer = chat.ask("Go.")
    expect(answer.get_by_text("Cut off")).to_be_visible()
    assert chat.text_of(answer) == "First try, half"
    expect(chat.page.get_by_text("Connected", exact=True)).to_be_visible()
    assert server.connections == 2
    answer.get_by_role("button", name="Try again").click()
    expect(chat.answers.first).to_contain_text("Second try, whole.")
    chat.page.get_by_role("button", name="Version before").click()
    expect(chat.answers.first).to_contain_text("First try, half")


def test_a_part_that_got_lost_is_no_answer(open_page: Callable[..., Page]) -> None:
    def on_generate(reply: Reply, _request: dict[str, Any]) -> None:
        reply.accept()
        reply.delta("One, two, ")
        reply.say("delta", skip=5, text="ten", channel="answer", n=9)

    server = ScriptedServer(on_generate)
    chat = ChatPage(open_page(before=server.install))
    answer = chat.ask("Count.")
    expect(answer.get_by_text("A part of the answer was lost")).to_be_visible()
    assert chat.text_of(answer) == "One, two,"
    assert server.received[-1]["type"] == "cancel"


def test_the_key_is_asked_for_and_kept_for_the_tab(open_page: Callable[..., Page]) -> None:
    server = ScriptedServer(lambda reply, _request: reply.answer("Open."), token="sesame")
    page = open_page(before=server.install)
    chat = ChatPage(page)
    box = page.get_by_label("API key")
    expect(box).to_be_visible()
    page.keyboard.press("Escape")
    box.fill("mellon")
    box.press("Enter")
    expect(page.get_by_text("The server did not take that key.")).to_be_visible()
    box.fill("sesame")
    box.press("Enter")
    expect(box).not_to_be_visible()
    expect(chat.ask("Open?")).to_contain_text("Open.")
    page.reload()
    expect(page.get_by_text("Connected", exact=True)).to_be_visible()
    assert page.evaluate("localStorage.getItem('pagurid.api_key')") is None


def test_another_version_of_the_protocol_is_told_and_not_retried(open_page: Callable[..., Page]) -> None:
    server = ScriptedServer(lambda _reply, _request: None)
    server.install = lambda page: page.route_web_socket(  # type: ignore[method-assign]
        "**/v1/ws", lambda socket: socket.on_message(lambda _frame: socket.close(code=4406, reason="version"))
    )
    page = open_page(before=server.install)
    expect(page.get_by_role("group", name="Connection")).to_contain_text("another version of the protocol")
    expect(page.get_by_role("button", name="Connect now")).to_be_visible()


def test_a_message_written_offline_waits(open_page: Callable[..., Page]) -> None:
    server = ScriptedServer(lambda reply, _request: reply.answer("Here I am."), token="later")
    page = open_page(before=server.install)
    chat = ChatPage(page)
    expect(page.get_by_label("API key")).to_be_visible()
    server.token = None
    page.evaluate("document.querySelector('dialog').close()")
    answer = chat.ask("Anyone?")
    expect(answer.get_by_text("Waiting for the connection")).to_be_visible()
    page.evaluate("document.querySelector('dialog').showModal()")
    page.get_by_label("API key").fill("x")
    page.get_by_label("API key").press("Enter")
    expect(answer).to_contain_text("Here I am.")
