import { cleanup, fireEvent, render, screen } from "@testing-library/svelte";
import { tick } from "svelte";
import { beforeEach, describe, expect, it, vi } from "vitest";
import App from "../src/App.svelte";
import { ChatApp } from "../src/lib/app/app.svelte";
import { Server } from "../src/lib/app/server.svelte";
import { MemoryStore } from "../src/lib/history/memory_store";
import { FakeSocket, installFakeSocket, script } from "./fake_socket";

let app: ChatApp;

beforeEach(async () => {
  installFakeSocket();
  localStorage.clear();
  sessionStorage.clear();
  location.hash = "";
  app = new ChatApp(new Server("ws://host/v1/ws", "0"), new MemoryStore("test"));
  app.chats.problem = null;
  app.server.connection.connect();
  FakeSocket.last.greet();
  render(App, { app });
  await tick();
  return cleanup;
});

const composer = () => screen.getByLabelText<HTMLTextAreaElement>("Message");
const type = (box: HTMLElement, value: string) => fireEvent.input(box, { target: { value } });
const asked = () => FakeSocket.last.sent.filter(({ type: t }) => t === "generate").length;

async function askAndAnswer(question: string, words: string) {
  await type(composer(), question);
  await fireEvent.keyDown(composer(), { key: "Enter", keyCode: 13 });
  const server = script(FakeSocket.last, FakeSocket.last.asked.id);
  server.accept();
  server.delta(words);
  server.done();
  await tick();
}

/** What browsers send while a Japanese candidate is confirmed, in Chrome's and in Safari's order. */
async function confirmCandidate(box: HTMLElement, order: "chrome" | "safari") {
  await fireEvent.compositionStart(box);
  if (order === "chrome") {
    await fireEvent.keyDown(box, { key: "Enter", keyCode: 229, isComposing: true });
    await fireEvent.compositionEnd(box);
  } else {
    await fireEvent.compositionEnd(box);
    await fireEvent.keyDown(box, { key: "Enter", keyCode: 229, isComposing: false });
  }
  await fireEvent.keyUp(box, { key: "Enter", keyCode: 13 });
}

describe("D36: the Enter that confirms a candidate", () => {
  it.each(["chrome", "safari"] as const)("does not send a message (%s)", async (order) => {
    await type(composer(), "にほんご");
    await confirmCandidate(composer(), order);
    expect(asked()).toBe(0);
    expect(composer().value).toBe("にほんご");
    await fireEvent.keyDown(composer(), { key: "Enter", keyCode: 13 });
    expect(asked()).toBe(1);
    expect(composer().value).toBe("");
  });

  it("Shift+Enter is left to the box, which makes a line of it", async () => {
    await type(composer(), "one");
    const notPrevented = await fireEvent.keyDown(composer(), { key: "Enter", keyCode: 13, shiftKey: true });
    expect(notPrevented).toBe(true);
    expect(asked()).toBe(0);
  });

  it.each(["chrome", "safari"] as const)("does not send an edited message (%s)", async (order) => {
    await askAndAnswer("first", "1");
    await fireEvent.click(screen.getByLabelText("Edit and send again"));
    const box = screen.getByLabelText<HTMLTextAreaElement>("Edit your message");
    await type(box, "編集");
    await confirmCandidate(box, order);
    expect(asked()).toBe(1);
    await fireEvent.keyDown(box, { key: "Enter", keyCode: 13 });
    expect(FakeSocket.last.asked.messages).toEqual([{ role: "user", content: "編集" }]);
  });

  it.each(["chrome", "safari"] as const)("does not end the naming of a chat (%s)", async (order) => {
    await askAndAnswer("first", "1");
    await fireEvent.click(screen.getByLabelText("Rename “first”"));
    const box = screen.getByLabelText<HTMLInputElement>("Title of the chat");
    await type(box, "題名");
    await confirmCandidate(box, order);
    expect(box.isConnected).toBe(true);
    await fireEvent.keyDown(box, { key: "Enter", keyCode: 13 });
    expect(app.chats.list[0]?.title).toBe("題名");
  });

  it("Escape that closes the candidates does not stop an answer", async () => {
    await type(composer(), "go");
    await fireEvent.keyDown(composer(), { key: "Enter", keyCode: 13 });
    await fireEvent.keyDown(composer(), { key: "Escape", keyCode: 27, isComposing: true });
    expect(FakeSocket.last.sent.at(-1)?.type).toBe("generate");
    await fireEvent.keyDown(composer(), { key: "Escape", keyCode: 27 });
    expect(FakeSocket.last.sent.at(-1)?.type).toBe("cancel");
  });
});

describe("the page", () => {
  it("shows question, answer and figures", async () => {
    await askAndAnswer("What is **this**?", "A *shell*.");
    // In the list, over the chat, and as the question.
    expect(screen.getAllByText("What is **this**?")).toHaveLength(3);
    expect(screen.getByText("shell").tagName).toBe("EM");
    const figures = [...document.querySelectorAll("[data-figure]")].map((node) => node.textContent);
    expect(figures).toEqual([
      "20 ms first token",
      "50 tokens/s",
      "1 ms queued",
      "5 prompt",
      "2 cached",
      "3 completion",
    ]);
    expect(document.title).toBe("What is **this**? · Pagurid");
  });

  it("D35: text of the person is text", async () => {
    await askAndAnswer("<img src=x onerror=window.pwned=1>", "ok");
    expect(document.querySelector("img")).toBeNull();
    expect(screen.getAllByText("<img src=x onerror=window.pwned=1>")).toHaveLength(3);
  });

  it("moves between versions of an answer", async () => {
    await askAndAnswer("again", "first try");
    await fireEvent.click(screen.getByLabelText("Answer again"));
    script(FakeSocket.last, FakeSocket.last.asked.id).error("internal", "A step failed.");
    await tick();
    expect(screen.getByText("A step failed.")).toBeTruthy();
    expect(screen.getByText("2 / 2")).toBeTruthy();
    await fireEvent.click(screen.getByLabelText("Version before"));
    expect(screen.getByText("first try")).toBeTruthy();
  });

  it("asks for a key when the server does, and sends it in hello only", async () => {
    FakeSocket.last.hangUp(4401);
    await tick();
    const box = screen.getByLabelText<HTMLInputElement>("API key");
    expect(box.closest("dialog")?.open).toBe(true);
    await type(box, "sesame");
    await fireEvent.submit(box.closest("form") as HTMLFormElement);
    expect(FakeSocket.last.url).toBe("ws://host/v1/ws");
    FakeSocket.last.greet();
    expect(FakeSocket.last.sent[0]).toMatchObject({ type: "hello", token: "sesame" });
    await tick();
    expect(box.closest("dialog")?.open).toBe(false);
    expect([sessionStorage.getItem("pagurid.api_key"), localStorage.getItem("pagurid.api_key")]).toEqual([
      "sesame",
      null,
    ]);
  });

  it("says that the server cannot be reached", async () => {
    FakeSocket.last.hangUp(1006);
    await tick();
    expect(screen.getByText(/The server cannot be reached\. Trying again/)).toBeTruthy();
    await fireEvent.click(screen.getByText("Connect now"));
    expect(FakeSocket.all).toHaveLength(2);
  });

  it("tells a wrong setting at once and does not take it", async () => {
    await fireEvent.click(screen.getByLabelText("Settings of this chat"));
    const box = screen.getByLabelText<HTMLInputElement>("Temperature");
    await type(box, "-2");
    expect(screen.getByText(/must be between 0 and 100/)).toBeTruthy();
    expect(app.chats.current.sampling.temperature).toBe(0.3);
    await type(box, "0.2");
    expect(app.chats.current.sampling.temperature).toBe(0.2);
    await fireEvent.click(screen.getByText("Use for new chats"));
    await askAndAnswer("x", "y");
    app.chats.startNew();
    expect(app.chats.current.sampling.temperature).toBe(0.2);
  });

  it("keeps the choice of colours", async () => {
    await fireEvent.click(screen.getByLabelText("Dark"));
    expect(document.documentElement.dataset.theme).toBe("dark");
    expect(localStorage.getItem("pagurid.theme")).toBe("dark");
    await fireEvent.click(screen.getByLabelText("As the system"));
    expect(document.documentElement.dataset.theme).toBeUndefined();
    expect(localStorage.getItem("pagurid.theme")).toBeNull();
  });

  it("copies on plain http, too, where there is no clipboard API", async () => {
    const copied = vi.fn(() => true);
    document.execCommand = copied;
    await askAndAnswer("q", "the answer");
    await fireEvent.click(screen.getByLabelText("Copy answer"));
    await vi.waitFor(() => expect(screen.getByLabelText("Copied")).toBeTruthy());
    expect(copied).toHaveBeenCalledWith("copy");
  });
});
