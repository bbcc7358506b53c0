"""The chat page as a person uses it: what to write in, what to press, what there is to read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from playwright.sync_api import expect

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page


class ChatPage:
    def __init__(self, page: Page) -> None:
        self.page = page
        self.composer = page.get_by_label("Message", exact=True)
        self.stop = page.get_by_role("button", name="Stop", exact=True)
        self.send = page.get_by_role("button", name="Send", exact=True)
        self.questions = page.locator("article.question")
        self.answers = page.locator("article.answer")
        self.view = page.locator(".view")
        self.chats = page.get_by_role("navigation", name="Chats").get_by_role("link")

    def ask(self, text: str) -> Locator:
        """Sends a message; gives the answer that begins."""
        before = self.answers.count()
        self.composer.fill(text)
        self.composer.press("Enter")
        expect(self.answers).to_have_count(before + 1)
        return self.answers.nth(before)

    def start_new(self) -> None:
        self.page.get_by_role("link", name="New chat").click()
        expect(self.questions).to_have_count(0)

    def stop_answer(self) -> None:
        self.stop.click()
        expect(self.send).to_be_visible()

    def text_of(self, answer: Locator) -> str:
        prose = answer.locator(".prose")
        return prose.first.inner_text() if prose.count() else ""

    def wait_for_text(self, answer: Locator, more_than: int = 0) -> str:
        """Waits until the answer is longer than so many characters; gives its text."""
        handle = answer.element_handle()
        self.page.wait_for_function(
            "([answer, n]) => (answer.querySelector('.prose')?.innerText.length ?? 0) > n",
            arg=[handle, more_than],
        )
        return self.text_of(answer)

    def wait_until_kept(self, question: str) -> None:
        """Waits until the browser's storage holds a part of the answer to this question."""
        self.page.evaluate(
            """async question => {
                const isKept = () => new Promise((resolve, reject) => {
                    const opening = indexedDB.open('pagurid');
                    opening.onerror = reject;
                    opening.onsuccess = () => {
                        const reading = opening.result.transaction('chats').objectStore('chats').getAll();
                        reading.onsuccess = () => {
                            opening.result.close();
                            resolve(reading.result.some(({ messages: [asked, answer] }) =>
                                asked.text === question && answer.text));
                        };
                    };
                });
                while (!(await isKept())) await new Promise(resolve => setTimeout(resolve, 20));
            }""",
            question,
        )

    def figures(self, answer: Locator) -> dict[str, str]:
        """The line under an answer: label → value."""
        return {
            str(figure.get_attribute("data-figure")): figure.locator("b").inner_text()
            for figure in answer.locator("[data-figure]").all()
        }
