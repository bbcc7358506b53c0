import { describe, expect, it } from "vitest";
import { Generation } from "../src/lib/protocol/generation";
import type { StreamMessage } from "../src/lib/protocol/messages";

const delta = (seq: number, text: string, more: object = {}): StreamMessage => ({
  type: "delta",
  id: "g",
  seq,
  text,
  channel: "answer",
  index: 0,
  n: seq + 1,
  ...more,
});

const done = (seq: number, more: object = {}): StreamMessage => ({
  type: "done",
  id: "g",
  seq,
  finish_reason: "stop",
  usage: { prompt_tokens: 4, cached_tokens: 0, completion_tokens: 2 },
  timing: {},
  ...more,
});

describe("a generation", () => {
  it("goes from accepted through its states to done", () => {
    const generation = new Generation("g");
    const phases = [
      { type: "accepted", id: "g", seq: 0, model: "m", prompt_tokens: 4, cached_tokens: 0, max_tokens: 9 },
      { type: "status", id: "g", seq: 1, state: "queued", position: 1 },
      { type: "status", id: "g", seq: 2, state: "prefill", done: 16, total: 32 },
      delta(3, "Hi"),
      { type: "status", id: "g", seq: 4, state: "preempted" },
      delta(5, " you"),
      done(6, { chars: 6 }),
    ].map((message) => {
      generation.apply(message as StreamMessage);
      return generation.phase;
    });
    expect(phases).toEqual(["queued", "queued", "prefill", "decode", "preempted", "decode", "done"]);
    expect(generation).toMatchObject({ answer: "Hi you", completionTokens: 2 });
  });

  it("ignores what it has seen", () => {
    const generation = new Generation("g");
    generation.apply(delta(0, "once"));
    expect(generation.apply(delta(0, "once"))).toBe(false);
    expect(generation.answer).toBe("once");
  });

  it("fails on a gap, and keeps the text before it", () => {
    const generation = new Generation("g");
    generation.apply(delta(0, "before"));
    generation.apply(delta(2, "after"));
    expect(generation.phase).toBe("failed");
    expect(generation.failure?.message).toMatch(/expected event 1, got 2/);
    expect(generation.answer).toBe("before");
  });

  it("counts code points, not UTF-16 units", () => {
    const generation = new Generation("g");
    generation.apply(delta(0, "a🫠é"));
    generation.apply(done(1, { chars: 3 }));
    expect(generation.phase).toBe("done");
  });

  it("does not pass a damaged text for an answer", () => {
    const generation = new Generation("g");
    generation.apply(delta(0, "abc"));
    generation.apply(done(1, { chars: 4 }));
    expect(generation).toMatchObject({
      phase: "failed",
      failure: { code: "text_mismatch", retryable: true },
    });
  });

  it("keeps reasoning apart from the answer", () => {
    const generation = new Generation("g");
    generation.apply(delta(0, "hm", { channel: "reasoning" }));
    generation.apply(delta(1, "42"));
    generation.apply(done(2, { chars: 4 }));
    expect(generation).toMatchObject({ phase: "done", reasoning: "hm", answer: "42" });
  });

  it("takes an error at the door, which has no seq", () => {
    const generation = new Generation("g");
    generation.apply({ type: "error", id: "g", code: "queue_full", message: "full", retryable: true });
    expect(generation).toMatchObject({ phase: "failed", failure: { code: "queue_full" } });
  });

  it("changes no more once it has ended", () => {
    const generation = new Generation("g");
    generation.apply(done(0));
    expect(generation.apply(delta(1, "late"))).toBe(false);
    generation.interrupt();
    expect(generation).toMatchObject({ phase: "done", answer: "" });
  });
});
