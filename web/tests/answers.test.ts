import { beforeEach, describe, expect, it, vi } from "vitest";
import { ChatApp } from "../src/lib/app/app.svelte";
import { Server } from "../src/lib/app/server.svelte";
import { branch } from "../src/lib/chat/branches";
import { MemoryStore } from "../src/lib/history/memory_store";
import type { AnswerMessage, UserMessage } from "../src/lib/history/schema";
import { FakeSocket, installFakeSocket, script } from "./fake_socket";

describe("answers in a chat", () => {
  let app: ChatApp;
  let store: MemoryStore;

  beforeEach(() => {
    vi.useFakeTimers();
    installFakeSocket();
    localStorage.clear();
    store = new MemoryStore("test");
    app = new ChatApp(new Server("ws://host/v1/ws", "0"), store);
    app.server.connection.connect();
    FakeSocket.last.greet();
    return () => vi.useRealTimers();
  });

  const shown = () => branch(app.chats.current);
  const answer = () => shown().at(-1) as AnswerMessage;
  const ask = (text: string) => {
    app.answers.ask(app.chats.current, text);
    return script(FakeSocket.last, FakeSocket.last.asked.id);
  };
  const askAndAnswer = (question: string, words: string) => {
    const server = ask(question);
    server.accept();
    server.delta(words);
    server.done();
  };

  it("sends the whole branch, with system prompt, sampling and model", () => {
    app.chats.current.systemPrompt = " Be brief. ";
    app.chats.current.sampling.seed = 7;
    askAndAnswer("one", "1");
    ask(" two\n");
    expect(FakeSocket.last.asked).toMatchObject({
      model: "tiny",
      messages: [
        { role: "system", content: "Be brief." },
        { role: "user", content: "one" },
        { role: "assistant", content: "1" },
        { role: "user", content: "two" },
      ],
      sampling: { temperature: 0.3, seed: 7 },
    });
  });

  it("grows with the deltas and ends with the figures", () => {
    const server = ask("hello there");
    expect(answer()).toMatchObject({ state: "running", text: "" });
    server.accept();
    server.status("prefill", { done: 4, total: 5 });
    vi.advanceTimersByTime(50);
    expect(app.answers.live.get(answer().id)).toMatchObject({
      phase: "prefill",
      progress: { done: 4, total: 5 },
    });
    server.delta("Hi");
    vi.advanceTimersByTime(50);
    expect(answer().text).toBe("Hi");
    server.delta(" you");
    server.done("length", { cost: 0.5 });
    expect(answer()).toMatchObject({
      state: "complete",
      text: "Hi you",
      finishReason: "length",
      usage: { completion_tokens: 3 },
      timing: { ttft_ms: 20 },
      cost: 0.5,
    });
    expect(app.answers.live.size).toBe(0);
    expect(app.chats.current.title).toBe("hello there");
  });

  it("asks nothing while an answer is being written, and nothing of no words", () => {
    ask("one");
    app.answers.ask(app.chats.current, "two");
    expect(shown()).toHaveLength(2);
    app.chats.startNew();
    app.answers.ask(app.chats.current, " \n");
    expect(shown()).toHaveLength(0);
  });

  it("stops on demand and keeps the text", () => {
    const server = ask("count");
    server.accept();
    server.delta("1 2 3");
    app.answers.stop(answer());
    expect(FakeSocket.last.sent.at(-1)).toMatchObject({ type: "cancel", id: FakeSocket.last.asked.id });
    expect(app.answers.live.get(answer().id)?.isStopping).toBe(true);
    server.done("cancelled");
    expect(answer()).toMatchObject({ state: "stopped", text: "1 2 3", finishReason: "cancelled" });
  });

  it("calls it stopped, too, when the connection is lost after a stop", () => {
    ask("count").accept();
    app.answers.stop(answer());
    FakeSocket.last.hangUp(1006);
    expect(answer().state).toBe("stopped");
  });

  it("marks a cut-off answer, keeps its text, and tries again beside it", () => {
    const server = ask("tell");
    server.accept();
    server.delta("Once upon");
    FakeSocket.last.hangUp(1006);
    expect(answer()).toMatchObject({ state: "interrupted", text: "Once upon" });
    app.server.connection.connect();
    FakeSocket.last.greet();
    const cut = answer();
    app.answers.regenerate(app.chats.current, cut);
    expect(FakeSocket.last.asked.messages).toEqual([{ role: "user", content: "tell" }]);
    expect(answer().id).not.toBe(cut.id);
    app.answers.show(app.chats.current, cut);
    expect(answer()).toMatchObject({ text: "Once upon" });
  });

  it("shows an error in place and puts the next try in its stead", () => {
    ask("too long").error("context_length_exceeded", "9 tokens, at most 8");
    const failed = answer();
    expect(failed).toMatchObject({
      state: "failed",
      failure: { code: "context_length_exceeded", message: "9 tokens, at most 8" },
    });
    app.answers.regenerate(app.chats.current, failed);
    expect(app.chats.current.messages.map(({ role }) => role)).toEqual(["user", "assistant"]);
    expect(answer().state).toBe("running");
  });

  it("joins a question that got no answer with the next, and keeps what follows it", () => {
    ask("first").error("internal", "no luck");
    const failed = answer();
    askAndAnswer("second", "2");
    expect(FakeSocket.last.asked.messages).toEqual([{ role: "user", content: "first\n\nsecond" }]);
    app.answers.regenerate(app.chats.current, failed);
    expect(app.chats.current.messages.map(({ text }) => text)).toEqual(["first", "", "second", "2", ""]);
  });

  it("fails at once what is too large to send", () => {
    app.answers.ask(app.chats.current, "x".repeat(5000));
    expect(answer()).toMatchObject({ state: "failed", failure: { code: "frame_too_large" } });
    expect(app.answers.live.size).toBe(0);
  });

  it("edits a question beside the old one", () => {
    askAndAnswer("one", "1");
    askAndAnswer("two", "2");
    const question = shown()[2] as UserMessage;
    app.answers.editAndAsk(app.chats.current, question, "zwei");
    expect(FakeSocket.last.asked.messages).toEqual([
      { role: "user", content: "one" },
      { role: "assistant", content: "1" },
      { role: "user", content: "zwei" },
    ]);
    app.answers.show(app.chats.current, question);
    expect(shown().map(({ text }) => text)).toEqual(["one", "1", "two", "2"]);
  });

  it("waits for the connection and is sent when there is one", () => {
    FakeSocket.last.hangUp(1006);
    app.answers.ask(app.chats.current, "patience");
    expect(app.answers.live.get(answer().id)?.phase).toBe("waiting");
    app.server.connection.connect();
    FakeSocket.last.greet();
    expect(FakeSocket.last.asked.messages).toEqual([{ role: "user", content: "patience" }]);
  });

  it("writes on in a chat that is not shown", async () => {
    const server = ask("slow");
    const id = app.chats.current.id;
    server.accept();
    app.chats.startNew();
    expect(app.answers.isWritingIn(id)).toBe(true);
    server.delta("done meanwhile");
    server.done();
    await vi.runAllTimersAsync();
    expect(await app.chats.open(id)).toBe(true);
    expect(answer()).toMatchObject({ state: "complete", text: "done meanwhile" });
  });

  it("keeps growing text as it grows, so that a crash loses little", async () => {
    const server = ask("long");
    server.accept();
    server.delta("so far");
    await vi.advanceTimersByTimeAsync(2000);
    const kept = await store.load(app.chats.current.id);
    expect(kept?.messages[1]).toMatchObject({ text: "so far" });
  });
});

describe("the list of chats", () => {
  let app: ChatApp;

  beforeEach(() => {
    installFakeSocket();
    localStorage.clear();
    app = new ChatApp(new Server("ws://host/v1/ws", "0"), new MemoryStore("test"));
    app.server.connection.connect();
    FakeSocket.last.greet();
  });

  const chatAbout = async (topic: string) => {
    app.chats.startNew();
    app.answers.ask(app.chats.current, topic);
    script(FakeSocket.last, FakeSocket.last.asked.id).done();
    await app.chats.keep(app.chats.current);
    return app.chats.current.id;
  };
  const titles = () => app.chats.list.map(({ title }) => title);

  it("has no chat without a message, then one per chat", async () => {
    expect(titles()).toEqual([]);
    await chatAbout("first");
    await chatAbout("second");
    expect(titles().sort()).toEqual(["first", "second"]);
  });

  it("renames; a later edit of the first question keeps the name", async () => {
    const id = await chatAbout("first");
    await app.chats.rename(id, "  My name  ");
    await app.chats.rename(id, "   ");
    app.answers.editAndAsk(app.chats.current, app.chats.current.messages[0] as UserMessage, "other words");
    expect(titles()).toEqual(["My name"]);
  });

  it("brings a deleted chat back", async () => {
    const id = await chatAbout("dear");
    await app.chats.delete(id);
    expect(titles()).toEqual([]);
    expect(app.chats.current.id).not.toBe(id);
    await app.chats.undelete();
    expect(titles()).toEqual(["dear"]);
    expect(app.chats.current.id).toBe(id);
  });

  it("does not let a late end of an answer bring a deleted chat back", async () => {
    app.answers.ask(app.chats.current, "going");
    const { id } = app.chats.current;
    app.answers.stopIn(id);
    await app.chats.delete(id);
    script(FakeSocket.last, FakeSocket.last.asked.id).done("cancelled");
    await app.chats.refresh();
    expect(titles()).toEqual([]);
  });

  it("tells when a chat cannot be kept, and loses nothing on the screen", async () => {
    const full = new MemoryStore("test");
    vi.spyOn(full, "save").mockRejectedValue(new Error("disk on fire"));
    const other = new ChatApp(app.server, full);
    other.answers.ask(other.chats.current, "precious");
    await other.chats.keep(other.chats.current);
    expect(other.chats.problem).toMatch(/disk on fire/);
    expect(other.chats.current.messages[0]?.text).toBe("precious");
  });
});
