"""D35: what a model or a person writes is never run, in whatever pieces it comes and wherever it is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from chat_page import ChatPage
from playwright.sync_api import expect
from scripted_server import Reply, ScriptedServer

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Page

IMG = '<img src="/favicon.svg?x" onload="window.pwned=1" onerror="window.pwned=1">'
HOSTILE = [
    f"An image: {IMG} end.",
    '<svg onload="window.pwned=1"></svg>',
    "<script>window.pwned=1</script>",
    '<iframe srcdoc="<script>parent.pwned=1</script>"></iframe>',
    "[click](javascript:window.pwned=1) and [data](data:text/html,<script>window.pwned=1</script>)",
    f"```\n{IMG}\n```",
    f"```html\n{IMG}\n<script>window.pwned=1</script>\n```",
    f"| {IMG} |\n|---|\n| {IMG} |",
    f"![{IMG}](https://elsewhere.example/x.png)",
    '<details open ontoggle="window.pwned=1">x</details><style>*{display:none}</style>',
]

ANYTHING_ALIVE = """() => [...document.querySelectorAll('article *')].filter(element =>
    /^(script|img|iframe|style|object|embed|link|meta|base|form)$/i.test(element.tagName) ||
    [...element.attributes].some(({ name, value }) =>
        name.startsWith('on') || /^\\s*(javascript|data|vbscript):/i.test(value))
  ).map(element => element.outerHTML)"""


def say(text: str, piece_chars: int) -> Callable[[Reply, dict[str, Any]], None]:
    return lambda reply, _request: reply.answer(text, piece_chars)


@pytest.mark.parametrize("text", HOSTILE)
def test_streamed_text_is_shown_and_not_run(open_page: Callable[..., Page], text: str) -> None:
    """D35: markup in an answer that comes three characters at a time, tags split across deltas."""
    page = open_page(before=ScriptedServer(say(text, 3)).install)
    chat = ChatPage(page)
    answer = chat.ask("Go on.")
    expect(chat.send).to_be_visible()
    assert page.evaluate(ANYTHING_ALIVE) == []
    links = answer.locator(".prose a").all()
    assert [link.get_attribute("rel") for link in links] == ["noopener noreferrer"] * len(links)
    page.reload()
    expect(chat.answers).to_have_count(1)
    assert page.evaluate(ANYTHING_ALIVE) == []
    assert page.evaluate("window.pwned") is None


def test_a_persons_own_text_is_text_everywhere(open_page: Callable[..., Page]) -> None:
    """D35: markup in a question stands in bubble, title and list as it was written, also after a reload."""
    page = open_page(before=ScriptedServer(say("Fine.", 7)).install)
    chat = ChatPage(page)
    chat.ask(IMG)
    expect(chat.send).to_be_visible()
    page.reload()
    expect(chat.questions.first).to_contain_text(IMG)
    expect(page.get_by_role("heading", level=1)).to_contain_text("<img src=")
    expect(chat.chats.first).to_contain_text("<img src=")
    assert page.locator("img").count() == 0
    assert page.evaluate("window.pwned") is None


def test_links_lead_to_the_web_and_mail_only(open_page: Callable[..., Page]) -> None:
    """D35: of all links only http, https and mailto become links."""
    text = (
        "[a](https://a.example/x) [b](http://b.example) [c](mailto:c@c.example) "
        "[d](JaVaScRiPt:alert(1)) [e](file:///etc/passwd) [f](/v1/stats) [g](//g.example) [h](\tjavascript:x)"
    )
    chat = ChatPage(open_page(before=ScriptedServer(say(text, 5)).install))
    answer = chat.ask("Links?")
    expect(chat.send).to_be_visible()
    assert [link.get_attribute("href") for link in answer.locator(".prose a").all()] == [
        "https://a.example/x",
        "http://b.example",
        "mailto:c@c.example",
    ]


def test_the_policy_of_the_page_forbids_inline_code(open_page: Callable[..., Page], server_url: str) -> None:
    """D35: even if markup got into the page, the server's content security policy would not let it run."""
    page = open_page()
    policy = page.request.get(server_url).headers["content-security-policy"]
    directives = {words[0]: words[1:] for words in (part.split() for part in policy.split(";")) if words}
    scripts = directives.get("script-src", directives["default-src"])
    assert scripts == ["'self'"]
    assert not {"'unsafe-inline'", "'unsafe-eval'", "*"} & {
        word for words in directives.values() for word in words
    }
