import { beforeEach, describe, expect, it } from "vitest";
import { Generation } from "../src/lib/protocol/generation";
import { type Output, Session } from "../src/lib/protocol/session";
import { READY } from "./fake_socket";

const CLIENT = { name: "test", version: "0" };
const REQUEST = { messages: [{ role: "user" as const, content: "hi" }] };
const frames = (output: Output) => output.send.map((frame) => JSON.parse(frame));

describe("a session", () => {
  let session: Session;

  beforeEach(() => {
    session = new Session({ client: CLIENT, token: "sesame" });
  });

  const receive = (message: object, nowMs = 0) => session.receive(JSON.stringify(message), nowMs);
  const getReady = () => {
    session.open(0);
    receive(READY);
  };
  const start = (id = "g") => {
    const generation = new Generation(id);
    const output = session.generate(generation, REQUEST, 0);
    return { generation, output };
  };

  it("greets first, with the key", () => {
    expect(frames(session.open(0))).toEqual([
      { type: "hello", protocol: 1, client: CLIENT, token: "sesame" },
    ]);
  });

  it("leaves the key out when there is none", () => {
    expect(frames(new Session({ client: CLIENT }).open(0))[0]).not.toHaveProperty("token");
  });

  it("will not generate before ready", () => {
    session.open(0);
    expect(() => start()).toThrow(/before ready/);
  });

  it("gives up on a server that never gets ready", () => {
    session.open(0);
    expect(session.nextPollMs()).toBe(10_000);
    expect(session.poll(9_999).close).toBeNull();
    expect(session.poll(10_000).close?.code).toBe(4440);
  });

  it("does not take other words for ready", () => {
    session.open(0);
    receive({ type: "ping", t: 1 }, 9_000);
    expect(session.poll(10_000).close?.code).toBe(4440);
  });

  it("answers a ping with what it carried", () => {
    getReady();
    expect(frames(receive({ type: "ping", t: { any: "thing" } }))).toEqual([
      { type: "pong", t: { any: "thing" } },
    ]);
  });

  it("pings a silent server once, and closes when no sign of life follows", () => {
    getReady();
    expect(session.nextPollMs()).toBe(15_000);
    expect(session.poll(14_999).send).toEqual([]);
    expect(frames(session.poll(15_000))).toEqual([{ type: "ping", t: 15_000 }]);
    expect(session.poll(20_000).send).toEqual([]);
    expect(session.nextPollMs()).toBe(30_000);
    expect(session.poll(30_000).close).toEqual({ code: 4440, reason: expect.any(String) });
  });

  it("takes any frame for a sign of life", () => {
    getReady();
    session.poll(15_000);
    receive({ type: "weather" }, 16_000);
    expect(session.poll(30_000).close).toBeNull();
  });

  it("tells the server that it lives while only the server talks", () => {
    getReady();
    const { generation } = start();
    expect(generation.phase).toBe("sent");
    receive({ type: "accepted", id: "g", seq: 0, model: "m", prompt_tokens: 1, max_tokens: 9 }, 14_000);
    expect(frames(session.poll(15_000))).toEqual([{ type: "ping", t: 15_000 }]);
  });

  it("wants a quick answer after the page woke up", () => {
    getReady();
    expect(frames(session.wake(60_000))).toEqual([{ type: "ping", t: 60_000 }]);
    expect(session.nextPollMs()).toBe(65_000);
    expect(session.poll(65_000).close?.code).toBe(4440);
  });

  it("sends generate with its fields beside the id", () => {
    getReady();
    expect(frames(start().output)).toEqual([{ type: "generate", id: "g", ...REQUEST }]);
  });

  it("refuses a message the server would close the connection for", () => {
    getReady();
    const generation = new Generation("g");
    const messages = [{ role: "user" as const, content: "é".repeat(2048) }];
    const output = session.generate(generation, { messages }, 0);
    expect(output.send).toEqual([]);
    expect(generation.failure).toMatchObject({ code: "frame_too_large", retryable: false });
    expect(generation.failure?.message).toMatch(/4\d{3} bytes.*4096/);
  });

  it("keeps many generations apart", () => {
    getReady();
    const a = start("a").generation;
    const b = start("b").generation;
    for (const [id, seq, text] of [
      ["a", 0, "A"],
      ["b", 0, "B"],
      ["b", 1, "b"],
      ["a", 1, "a"],
    ] as const)
      receive({ type: "delta", id, seq, text, channel: "answer", n: 1 });
    expect([a.answer, b.answer]).toEqual(["Aa", "Bb"]);
  });

  it("stops a generation it has given up on, and hears no more of it", () => {
    getReady();
    const { generation } = start();
    const output = receive({ type: "delta", id: "g", seq: 5, text: "x", channel: "answer", n: 1 });
    expect(generation.failure?.code).toBe("sequence_gap");
    expect(frames(output)).toEqual([{ type: "cancel", id: "g" }]);
    expect(receive({ type: "delta", id: "g", seq: 0, text: "x", channel: "answer", n: 1 }).events).toEqual(
      [],
    );
  });

  it("cancels what runs, and nothing else", () => {
    getReady();
    start();
    expect(frames(session.cancel("g", 0))).toEqual([{ type: "cancel", id: "g" }]);
    expect(session.cancel("other", 0).send).toEqual([]);
  });

  it("hands on an error without an id and stays", () => {
    getReady();
    const { generation } = start();
    const output = receive({ type: "error", code: "unknown_type", message: "?", retryable: false });
    expect(output.events).toMatchObject([{ type: "error", error: { code: "unknown_type" } }]);
    expect(output.close).toBeNull();
    expect(generation.ended).toBe(false);
  });

  it("closes on words that are not the protocol, and then says nothing more", () => {
    getReady();
    expect(session.receive("nonsense", 0).close?.code).toBe(4400);
    expect(receive({ type: "ping", t: 1 }).send).toEqual([]);
    expect(session.poll(99_999)).toEqual({ send: [], events: [], close: null });
  });

  it("cuts off what runs when the connection ends, and keeps its text", () => {
    getReady();
    const { generation } = start();
    receive({ type: "delta", id: "g", seq: 0, text: "half", channel: "answer", n: 1 });
    expect(session.end().events).toEqual([{ type: "generation", generation }]);
    expect(generation).toMatchObject({ phase: "interrupted", answer: "half" });
  });
});
