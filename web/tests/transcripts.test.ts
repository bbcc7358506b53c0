/** The golden transcripts of `tests/vectors`, which the server's tests read, too: both ends are held to the same words. */
import { describe, expect, it } from "vitest";
import { Generation } from "../src/lib/protocol/generation";
import type { GenerateRequest } from "../src/lib/protocol/messages";
import { type Output, Session } from "../src/lib/protocol/session";

type Frame = Record<string, unknown> & { type: string };
type Step = { client: Frame; at: number } | { server: Frame } | { engine: string };

const FILES = import.meta.glob<string>("../../tests/vectors/protocol_*.jsonl", {
  query: "?raw",
  import: "default",
  eager: true,
});

function stepsOf(file: string): Step[] {
  return file
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => JSON.parse(line));
}

function spoken({ send, close }: Output): Frame[] {
  expect(close).toBeNull();
  return send.map((frame) => JSON.parse(frame));
}

/** Has the page's session say what the client of the transcript says. */
function say(session: Session, frame: Frame, generations: Map<string, Generation>, atMs: number): Output {
  switch (frame.type) {
    case "hello":
      return session.open(atMs);
    case "generate": {
      const { type: _type, id, ...request } = frame;
      const generation = new Generation(String(id));
      generations.set(generation.id, generation);
      return session.generate(generation, request as unknown as GenerateRequest, atMs);
    }
    case "cancel":
      return session.cancel(String(frame.id), atMs);
    case "ping":
      // The page's `t` is its clock.
      return session.wake(Number(frame.t));
    default:
      throw new Error(`the page never says ${frame.type}`);
  }
}

it("there are transcripts", () => {
  expect(Object.keys(FILES)).not.toEqual([]);
});

describe.each(Object.entries(FILES))("%s", (_name, file) => {
  const steps = stepsOf(file);

  it("is what the page says and understands, word for word", () => {
    const hello = steps
      .flatMap((step) => ("client" in step ? [step.client] : []))
      .find((f) => f.type === "hello");
    const session = new Session({ client: hello?.client as { name: string; version: string } });
    const generations = new Map<string, Generation>();
    const told = new Map<string, Frame[]>();
    const said: Frame[] = [];
    let atMs = 0;
    for (const step of steps) {
      if ("client" in step) {
        atMs = step.at * 1000;
        // A pong has been said already, by itself.
        if (said.length === 0) said.push(...spoken(say(session, step.client, generations, atMs)));
        expect(said.shift()).toEqual(step.client);
      } else if ("server" in step) {
        expect(said).toEqual([]);
        said.push(...spoken(session.receive(JSON.stringify(step.server), atMs)));
        const id = step.server.id;
        if (typeof id === "string") told.set(id, [...(told.get(id) ?? []), step.server]);
      }
    }
    expect(said).toEqual([]);
    for (const [id, frames] of told) {
      const generation = generations.get(id);
      const last = frames.at(-1);
      const text = frames.flatMap(({ type, text }) => (type === "delta" ? [text] : [])).join("");
      expect(generation?.answer).toBe(text);
      if (last?.type === "done") {
        const { finish_reason, usage, timing } = last;
        expect(generation).toMatchObject({ phase: "done", done: { finish_reason, usage, timing } });
      } else {
        expect(last?.type).toBe("error");
        const { code, message, retryable } = last as Frame;
        expect(generation).toMatchObject({ phase: "failed", failure: { code, message, retryable } });
      }
    }
  });
});
