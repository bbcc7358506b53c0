import { describe, expect, it } from "vitest";
import { before, branch, newestLeaf, siblings, titleFrom } from "../src/lib/chat/branches";
import { ageOf } from "../src/lib/chat/calendar";
import { keyMeaning } from "../src/lib/chat/composer_keys";
import { allFigures, formatBytes, formatCost, formatMs, headline, timeline } from "../src/lib/chat/figures";
import { progressWords } from "../src/lib/chat/progress_words";
import {
  DEFAULT_SAMPLING,
  readField,
  readStop,
  SAMPLING_FIELDS,
  toWire,
  writeStop,
} from "../src/lib/chat/sampling";
import type { AnswerMessage, UserMessage } from "../src/lib/history/schema";

const say = (id: string, parentId: string | null): UserMessage => ({
  role: "user",
  id,
  parentId,
  createdAtMs: 0,
  text: id,
});

describe("the tree of messages", () => {
  const messages = [
    say("a", null),
    say("b", "a"),
    say("c", "a"),
    say("d", "b"),
    say("e", "c"),
    say("f", "c"),
  ];
  const ids = (list: { id: string }[]) => list.map(({ id }) => id);

  it("shows the branch to the leaf", () => {
    expect(ids(branch({ messages, leafId: "d" }))).toEqual(["a", "b", "d"]);
    expect(branch({ messages, leafId: null })).toEqual([]);
    expect(branch({ messages, leafId: "lost" })).toEqual([]);
  });

  it("knows what stands before a message, and its versions", () => {
    expect(ids(before({ messages, leafId: "d" }, say("f", "c")))).toEqual(["a", "c"]);
    expect(ids(siblings({ messages, leafId: null }, say("b", "a")))).toEqual(["b", "c"]);
  });

  it("goes down to the newest end", () => {
    expect(newestLeaf({ messages, leafId: null }, "a")).toBe("f");
    expect(newestLeaf({ messages, leafId: null }, "b")).toBe("d");
  });
});

describe("a title", () => {
  it.each([
    ["", "New chat"],
    ["\n\n  What   is\tthis?\nmore", "What is this?"],
    ["word ".repeat(30), `${"word ".repeat(12).trim()}…`],
    ["日".repeat(80), `${"日".repeat(60)}…`],
  ])("of %j is %j", (text, title) => {
    expect(titleFrom(text)).toBe(title);
  });
});

describe("D36: keys in a text box", () => {
  const key = (more: object) => ({
    key: "Enter",
    keyCode: 13,
    isComposing: false,
    shiftKey: false,
    ctrlKey: false,
    altKey: false,
    metaKey: false,
    ...more,
  });

  it.each([
    ["Enter", {}, "submit"],
    ["Ctrl+Enter", { ctrlKey: true }, "submit"],
    ["Shift+Enter", { shiftKey: true }, null],
    ["Alt+Enter", { altKey: true }, null],
    ["Enter that confirms a candidate", { isComposing: true }, null],
    ["Enter after compositionend, as Safari sends it", { keyCode: 229 }, null],
    ["Escape", { key: "Escape", keyCode: 27 }, "cancel"],
    ["Escape that closes the candidates", { key: "Escape", keyCode: 27, isComposing: true }, null],
    ["a letter", { key: "a", keyCode: 65 }, null],
  ])("%s", (_name, event, meaning) => {
    expect(keyMeaning(key(event))).toBe(meaning);
  });
});

describe("sampling settings", () => {
  const field = (name: string) => {
    const spec = SAMPLING_FIELDS.find((candidate) => candidate.name === name);
    if (spec === undefined) throw new Error(name);
    return spec;
  };

  it("go on the wire under the API's names, without what is left to the server", () => {
    expect(toWire({ ...DEFAULT_SAMPLING, stop: [] })).toEqual({
      temperature: 0.3,
      top_p: 0.9,
      top_k: 0,
      min_p: 0.05,
      repetition_penalty: 1.05,
    });
    expect(toWire({ ...DEFAULT_SAMPLING, max_tokens: 5, seed: 0, stop: ["\n"] })).toMatchObject({
      max_tokens: 5,
      seed: 0,
      stop: ["\n"],
    });
  });

  it.each([
    ["temperature", "0", 0],
    ["temperature", "0,5", 0.5],
    ["max_tokens", " ", null],
    ["seed", "42", 42],
  ])("%s takes %j", (name, typed, value) => {
    expect(readField(field(name), typed)).toEqual({ value, problem: null });
  });

  it.each([
    ["temperature", "", /needs a number/],
    ["temperature", "warm", /not “warm”/],
    ["temperature", "-1", /between 0 and 100/],
    ["temperature", "Infinity", /needs a number/],
    ["top_p", "0", /between 0.01 and 1/],
    ["top_k", "1.5", /whole number/],
    ["max_tokens", "0", /between 1/],
  ])("%s refuses %j", (name, typed, problem) => {
    expect(readField(field(name), typed)).toEqual({ problem: expect.stringMatching(problem) });
  });

  it("write stop strings one per line and read them back", () => {
    const stop = ["###", "\n\n", "a\tb"];
    expect(readStop(writeStop(stop))).toEqual({ value: stop, problem: null });
    expect(readStop("")).toEqual({ value: [], problem: null });
    expect(readStop("x\n".repeat(65))).toEqual({ problem: expect.stringMatching(/64.*65/) });
    expect(readStop("é".repeat(513))).toEqual({ problem: expect.stringMatching(/1024 bytes/) });
  });
});

describe("figures", () => {
  const answer: AnswerMessage = {
    role: "assistant",
    id: "m",
    parentId: null,
    createdAtMs: 0,
    text: "x",
    reasoning: "",
    state: "complete",
    model: "tiny",
    finishReason: "length",
    usage: { prompt_tokens: 1204, cached_tokens: 0, completion_tokens: 8 },
    timing: { ttft_ms: 151.4, queue_ms: 1, prefill_ms: 3, decode_ms: 4, kv_cache_peak_bytes: 7_864_320 },
    cost: 0.0000123456,
    costPer1kTokens: null,
    failure: null,
  };

  it("are named with their units, and left out where there are none", () => {
    expect(headline(answer)).toEqual([
      { label: "first token", value: "151 ms" },
      { label: "queued", value: "1 ms" },
      { label: "prompt", value: "1,204" },
      { label: "cached", value: "0" },
      { label: "completion", value: "8" },
      { label: "cost", value: "0.0000123" },
    ]);
    expect(headline({ ...answer, timing: null, usage: null, cost: null })).toEqual([]);
    const all = Object.fromEntries(allFigures(answer).map(({ label, value }) => [label, value]));
    expect(all).toMatchObject({
      "KV memory, peak": "7.5 MiB",
      "Ended because": "token limit reached",
      Model: "tiny",
    });
    expect(all).not.toHaveProperty("Preemptions");
  });

  it("divide the time in order", () => {
    expect(timeline(answer).map(({ kind, start, share }) => [kind, start, share])).toEqual([
      ["queue", 0, 0.125],
      ["prefill", 0.125, 0.375],
      ["decode", 0.5, 0.5],
    ]);
    expect(timeline({ ...answer, timing: {} })).toEqual([]);
  });

  it.each([
    [2.31, "2.3 ms"],
    [999.4, "999 ms"],
    [1234, "1.23 s"],
    [12_345, "12.3 s"],
    [83_000, "1 min 23 s"],
  ])("%d ms is %s", (ms, words) => {
    expect(formatMs(ms)).toBe(words);
  });

  it("are readable at any size", () => {
    expect([formatBytes(512), formatBytes(3 * 2 ** 30)]).toEqual(["512 B", "3 GiB"]);
    expect([formatCost(0), formatCost(1.5), formatCost(0.00000000123)]).toEqual([
      "0",
      "1.5",
      "0.00000000123",
    ]);
  });
});

describe("progress", () => {
  const words = (phase: string, progress = {}, isStopping = false) =>
    progressWords({ phase, progress, isStopping, completionTokens: 0 } as Parameters<
      typeof progressWords
    >[0]);

  it("says where a request is", () => {
    expect(words("queued", { position: 0 }).words).toBe("In the queue, next in line");
    expect(words("queued", { position: 3, eta_ms: 2500 }).words).toBe(
      "In the queue, 3 before you, about 3 s",
    );
    expect(words("prefill", { done: 512, total: 2048 })).toEqual({
      words: "Reading the prompt, 512 of 2,048 tokens",
      share: 0.25,
    });
    expect(words("prefill").share).toBeNull();
    expect(words("preempted").words).toMatch(/Set aside/);
    expect(words("waiting").words).toMatch(/connection/);
    expect(words("decode", {}, true).words).toBe("Stopping");
  });
});

describe("ages", () => {
  const now = new Date(2026, 11, 15, 0, 30).getTime();
  const at = (day: number, hour: number) => new Date(2026, 11, day, hour).getTime();

  it.each([
    [now - 60_000, "Today"],
    [at(14, 23), "Yesterday"],
    [at(8, 0), "Last 7 days"],
    [at(1, 9), "Last 30 days"],
    [new Date(2026, 9, 1).getTime(), "Older"],
  ])("%d", (timeMs, age) => {
    expect(ageOf(timeMs, now)).toBe(age);
  });
});
