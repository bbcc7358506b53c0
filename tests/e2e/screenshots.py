"""Pictures of the chat page: `python tests/e2e/screenshots.py http://127.0.0.1:8000 pictures/`.

Needs a running server; the answers are the served model's own. Makes wide and narrow, light and dark
ones of an empty page, a conversation, its figures and the settings. Of these
`wide-light-conversation.png` is what the README shows as `docs/images/chat.png`.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from chat_page import ChatPage
from chromium import launch
from playwright.sync_api import expect, sync_playwright

if TYPE_CHECKING:
    from playwright.sync_api import Browser

SIZES = {"wide": {"width": 1280, "height": 800}, "narrow": {"width": 390, "height": 844}}
SCALE = 1.5
ANSWER_WITHIN_MS = 120_000
EARLIER = ["Explain why the sky is blue.", "Give me a name for a sailing boat."]
CONVERSATION = [
    "What is the capital of France?",
    "Write a Python function that checks whether a word is a palindrome, and explain it.",
]


def ask(chat: ChatPage, question: str) -> None:
    chat.ask(question)
    expect(chat.send).to_be_visible(timeout=ANSWER_WITHIN_MS)


def picture_set(browser: Browser, url: str, folder: Path, size: str, scheme: str, seed: int) -> None:
    is_narrow = size == "narrow"
    context = browser.new_context(
        viewport=SIZES[size],
        device_scale_factor=SCALE,
        color_scheme=scheme,
        is_mobile=is_narrow,
        has_touch=is_narrow,
    )
    defaults = json.dumps({"sampling": {"seed": seed}})
    context.add_init_script(f"localStorage.setItem('pagurid.chat_defaults', {json.dumps(defaults)})")
    page = context.new_page()
    chat = ChatPage(page)

    def shoot(what: str) -> None:
        page.mouse.move(0, 0)
        page.wait_for_timeout(600)  # for what moves to come to rest
        page.screenshot(path=folder / f"{size}-{scheme}-{what}.png")

    page.goto(url)
    expect(page.get_by_text("You are talking to")).to_be_visible()
    shoot("empty")
    for question in EARLIER:
        page.goto(f"{url}/#new")
        ask(chat, question)
    page.goto(f"{url}/#new")
    expect(chat.questions).to_have_count(0)
    for question in CONVERSATION:
        ask(chat, question)
    shoot("conversation")
    chat.answers.last.get_by_role("button", name="Figures of this answer").click()
    page.get_by_role("button", name="Jump to latest").or_(chat.composer).first.click()
    shoot("figures")
    page.get_by_label("Settings of this chat").click()
    shoot("settings")
    if is_narrow:
        page.get_by_label("Close settings").click()
        page.get_by_role("button", name="Chats", exact=True).click()
        shoot("chats")
    context.close()


def main() -> None:
    parser = argparse.ArgumentParser(description="Pictures of the chat page of a running server.")
    parser.add_argument("url", help="where the server listens, such as http://127.0.0.1:8000")
    parser.add_argument("folder", type=Path, help="where to put the pictures")
    parser.add_argument("--only", choices=SIZES, help="one size only")
    parser.add_argument("--seed", type=int, default=6, help="of the answers, so that they can be had again")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = launch(playwright)
        for size in [arguments.only] if arguments.only else SIZES:
            for scheme in ("light", "dark"):
                picture_set(
                    browser, arguments.url.rstrip("/"), arguments.folder, size, scheme, arguments.seed
                )
        browser.close()


if __name__ == "__main__":
    main()
