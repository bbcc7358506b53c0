import { describe, expect, it } from "vitest";
import { MalformedFrame, parseServerMessage } from "../src/lib/protocol/parse";
import { READY } from "./fake_socket";

const parse = (value: unknown) => parseServerMessage(JSON.stringify(value));

describe("a frame", () => {
  it("of a known type keeps the fields it is defined to have and drops the others", () => {
    const message = parse({ type: "status", id: "a", seq: 3, state: "queued", position: 2, news: true });
    expect(message).toEqual({ type: "status", id: "a", seq: 3, state: "queued", position: 2 });
  });

  it("of an unknown type is no error", () => {
    expect(parse({ type: "weather", id: "a", seq: 0 })).toBeNull();
  });

  it("takes null and absence of a figure for the same", () => {
    const usage = { prompt_tokens: 1, cached_tokens: 0, completion_tokens: 0 };
    const done = parse({
      type: "done",
      id: "a",
      seq: 1,
      finish_reason: "cancelled",
      usage,
      timing: { ttft_ms: null, queue_ms: 0.5 },
      cost: null,
      chars: 0,
    });
    expect(done).toEqual({
      type: "done",
      id: "a",
      seq: 1,
      finish_reason: "cancelled",
      usage,
      timing: { queue_ms: 0.5 },
      chars: 0,
    });
  });

  it.each([
    ["no JSON", "{", /expected JSON/],
    ["not an object", "[1]", /JSON object/],
    ["no type", "{}", /frame\.type: expected a string, got nothing/],
    ["a mistyped field", '{"type":"delta","id":7}', /delta\.id: expected a string, got 7/],
    ["a state nobody knows", '{"type":"status","id":"a","seq":0,"state":"nap"}', /one of queued, prefill/],
    ["a broken list", JSON.stringify({ ...READY, models: [1] }), /ready\.models: expected a list of objects/],
    ["a broken item", JSON.stringify({ ...READY, models: [{ id: "m" }] }), /models\[0\]\.context_length/],
  ])("with %s says what is wrong", (_name, frame, message) => {
    expect(() => parseServerMessage(frame)).toThrow(MalformedFrame);
    expect(() => parseServerMessage(frame)).toThrow(message);
  });
});
