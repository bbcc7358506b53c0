"""A person chats with a real model through a real server: send, read along, stop, go on, come back later."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from chat_page import ChatPage
from playwright.sync_api import expect

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Page


@pytest.fixture
def chat(open_page: Callable[..., Page]) -> ChatPage:
    return ChatPage(open_page())


def test_text_grows_and_stops_on_demand(chat: ChatPage) -> None:
    answer = chat.ask("Tell me about the sea.")
    first = chat.wait_for_text(answer)
    later = chat.wait_for_text(answer, more_than=len(first) + 20)
    assert later.startswith(first[:20].rstrip())
    chat.stop_answer()
    expect(answer.get_by_text("Stopped.")).to_be_visible()
    stopped_at = chat.text_of(answer)
    assert len(stopped_at) >= len(later)
    chat.page.wait_for_timeout(300)
    assert chat.text_of(answer) == stopped_at


def test_figures_stand_under_an_answer(chat: ChatPage) -> None:
    answer = chat.ask("Tell me about the tide.")
    chat.wait_for_text(answer, more_than=40)
    chat.stop_answer()
    figures = chat.figures(answer)
    assert set(figures) == {"first token", "tokens/s", "queued", "prompt", "cached", "completion", "cost"}
    assert re.fullmatch(r"[\d.]+ m?s", figures["first token"])
    assert int(figures["prompt"]) > 5
    assert int(figures["completion"].replace(",", "")) > 5
    assert float(figures["cost"]) > 0
    answer.get_by_role("button", name="Figures of this answer").click()
    for label in ("Prefill", "Between tokens, p99", "KV memory, peak", "Preemptions", "Ended because"):
        expect(answer.locator("dt", has_text=label).first).to_be_visible()


def test_a_second_answer_stands_beside_the_first(chat: ChatPage) -> None:
    answer = chat.ask("Count the waves.")
    chat.wait_for_text(answer, more_than=30)
    chat.stop_answer()
    first = chat.text_of(answer)
    answer.get_by_role("button", name="Answer again").click()
    chat.wait_for_text(chat.answers.first)
    chat.stop_answer()
    expect(chat.answers).to_have_count(1)
    expect(chat.page.get_by_text("2 / 2")).to_be_visible()
    chat.page.get_by_role("button", name="Version before").click()
    expect(chat.page.get_by_text("1 / 2")).to_be_visible()
    assert chat.text_of(chat.answers.first) == first


def test_a_question_can_be_edited_and_sent_again(chat: ChatPage) -> None:
    chat.wait_for_text(chat.ask("Name three shels."))
    chat.stop_answer()
    chat.questions.first.hover()
    chat.page.get_by_role("button", name="Edit and send again").click()
    box = chat.page.get_by_label("Edit your message")
    box.fill("Name three shells.")
    box.press("Enter")
    expect(chat.questions).to_have_count(1)
    expect(chat.questions.first).to_contain_text("Name three shells.")
    chat.wait_for_text(chat.answers.first)
    chat.stop_answer()
    chat.page.get_by_role("button", name="Version before").click()
    expect(chat.questions.first).to_contain_text("Name three shels.")


def test_the_history_survives_a_reload(chat: ChatPage) -> None:
    answer = chat.ask("What do crabs eat?")
    chat.wait_for_text(answer, more_than=30)
    chat.stop_answer()
    text, figures = chat.text_of(answer), chat.figures(answer)
    chat.page.reload()
    expect(chat.questions.first).to_contain_text("What do crabs eat?")
    assert chat.text_of(chat.answers.first) == text
    assert chat.figures(chat.answers.first) == figures
    expect(chat.chats).to_have_count(1)
    # The conversation goes on from there.
    chat.wait_for_text(chat.ask("And when?"))
    chat.stop_answer()


def test_a_reload_in_mid_answer_keeps_what_came(chat: ChatPage) -> None:
    answer = chat.ask("Tell me everything.")
    chat.wait_for_text(answer, more_than=60)
    chat.wait_until_kept("Tell me everything.")
    chat.page.reload()
    cut = chat.answers.first
    expect(cut.get_by_text("Cut off")).to_be_visible()
    assert len(chat.text_of(cut)) > 0
    cut.get_by_role("button", name="Try again").click()
    expect(chat.stop).to_be_visible()
    expect(chat.page.get_by_text("Cut off")).to_have_count(0)
    chat.wait_for_text(chat.answers.first)
    chat.stop_answer()


def test_two_chats_are_written_at_once(chat: ChatPage) -> None:
    first = chat.ask("One long story, please.")
    before = chat.wait_for_text(first)
    chat.start_new()
    second = chat.ask("Another long story, please.")
    chat.wait_for_text(second, more_than=20)
    expect(chat.page.get_by_role("navigation", name="Chats").get_by_text("writing")).to_have_count(2)
    chat.chats.filter(has_text="One long story").click()
    expect(chat.questions.first).to_contain_text("One long story")
    assert len(chat.text_of(chat.answers.first)) > len(before)
    chat.stop_answer()
    chat.chats.filter(has_text="Another long story").click()
    chat.stop_answer()


def test_each_chat_keeps_its_draft(chat: ChatPage) -> None:
    chat.wait_for_text(chat.ask("First."))
    chat.stop_answer()
    chat.composer.fill("half a thou")
    chat.start_new()
    expect(chat.composer).to_have_value("")
    chat.chats.first.click()
    expect(chat.composer).to_have_value("half a thou")


def test_chats_are_found_renamed_deleted_and_brought_back(chat: ChatPage) -> None:
    page = chat.page
    for question in ("The price of pearls", "The weight of whales"):
        chat.start_new()
        chat.wait_for_text(chat.ask(question))
        chat.stop_answer()
    expect(chat.chats).to_have_count(2)
    page.get_by_label("Search chats").fill("PEARLS")
    expect(chat.chats).to_have_count(1)
    page.get_by_label("Search chats").fill("")

    page.get_by_label("Rename “The weight of whales”").click()
    page.get_by_label("Title of the chat").fill("Whales")
    page.get_by_label("Title of the chat").press("Enter")
    expect(page.get_by_role("heading", name="Whales", level=1)).to_be_visible()

    page.get_by_label("Delete “Whales”").click()
    expect(chat.chats).to_have_count(1)
    expect(chat.questions).to_have_count(0)
    page.get_by_role("button", name="Undo").click()
    expect(chat.chats).to_have_count(2)
    expect(chat.questions.first).to_contain_text("The weight of whales")
    page.reload()
    expect(chat.chats.filter(has_text="Whales")).to_have_count(1)


def test_settings_are_the_chats_own_and_reach_the_server(chat: ChatPage) -> None:
    page = chat.page
    page.get_by_label("Settings of this chat").click()
    page.get_by_label("Max tokens").fill("7")
    page.get_by_label("Seed", exact=True).fill("3")
    page.get_by_label("System prompt").fill("Speak like the sea.")
    answer = chat.ask("Hello?")
    expect(chat.send).to_be_visible()
    expect(answer.get_by_text("Ended at the token limit.")).to_be_visible()
    assert chat.figures(answer)["completion"] == "7"
    page.reload()
    page.get_by_label("Settings of this chat").click()
    expect(page.get_by_label("Max tokens")).to_have_value("7")
    chat.start_new()
    expect(page.get_by_label("Max tokens")).to_have_value("")


def test_an_error_is_shown_where_the_answer_would_be(chat: ChatPage) -> None:
    chat.page.get_by_label("Settings of this chat").click()
    chat.page.get_by_label("Max tokens").fill("900000")
    answer = chat.ask("Hello?")
    expect(answer.get_by_text("context_length_exceeded")).to_be_visible()
    chat.page.get_by_label("Max tokens").fill("5")
    answer.get_by_role("button", name="Try again").click()
    expect(chat.answers.first.get_by_text("Ended at the token limit.")).to_be_visible()
