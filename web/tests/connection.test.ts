import { beforeEach, describe, expect, it, vi } from "vitest";
import { Backoff } from "../src/lib/protocol/backoff";
import { closeVerdict } from "../src/lib/protocol/close_codes";
import { Connection, type ConnectionState } from "../src/lib/protocol/connection";
import { FakeSocket, installFakeSocket, script } from "./fake_socket";

const REQUEST = { messages: [{ role: "user" as const, content: "hi" }] };

describe("the connection", () => {
  let states: ConnectionState[];
  let token: string | undefined;
  let connection: Connection;

  beforeEach(() => {
    vi.useFakeTimers({ now: 0 });
    installFakeSocket();
    states = [];
    token = undefined;
    connection = new Connection({
      url: "ws://host/v1/ws",
      client: { name: "test", version: "0" },
      token: () => token,
      onState: (state) => states.push(state),
      onError: () => undefined,
      random: () => 0.5,
    });
    connection.connect();
    return () => vi.useRealTimers();
  });

  const state = () => states.at(-1);

  it("offers the subprotocol and gets ready", () => {
    expect(FakeSocket.last.protocol).toBe("pagurid.v1");
    FakeSocket.last.greet();
    expect(states.map(({ name }) => name)).toEqual(["connecting", "ready"]);
  });

  it("comes back after a loss, later and later, and at once again after being ready", () => {
    const waits = [1006, 1012, 4440].map((code) => {
      FakeSocket.last.hangUp(code);
      const now = state();
      if (now?.name !== "waiting") throw new Error(`expected to wait, got ${now?.name}`);
      const wait = now.retryAtMs - Date.now();
      vi.advanceTimersByTime(wait);
      return wait;
    });
    expect(waits).toEqual([250, 500, 1000]);
    FakeSocket.last.greet();
    FakeSocket.last.hangUp(1006);
    expect(state()).toMatchObject({ name: "waiting", retryAtMs: Date.now() + 250 });
  });

  it("does not come back before the time a leaving server names", () => {
    FakeSocket.last.greet();
    FakeSocket.last.say({ type: "going_away", reason: "restart", reconnect_after_ms: 3000 });
    FakeSocket.last.hangUp(1012);
    expect(state()).toMatchObject({ retryAtMs: 3250 });
  });

  it("asks for a key on 4401, and says whether one was refused", () => {
    FakeSocket.last.open();
    FakeSocket.last.hangUp(4401);
    expect(state()).toEqual({ name: "unauthorized", keyWasSent: false });
    token = "wrong";
    connection.connect();
    FakeSocket.last.open();
    expect(FakeSocket.last.sent[0]).toMatchObject({ type: "hello", token: "wrong" });
    FakeSocket.last.hangUp(4401);
    expect(state()).toEqual({ name: "unauthorized", keyWasSent: true });
    vi.advanceTimersByTime(120_000);
    expect(FakeSocket.all).toHaveLength(2);
  });

  it("interrupts what runs when the socket is lost and never sends it again", () => {
    FakeSocket.last.greet();
    const generation = connection.generate(REQUEST, () => undefined);
    const server = script(FakeSocket.last, generation.id);
    server.accept();
    server.delta("half an ans");
    FakeSocket.last.hangUp(1006);
    expect(generation).toMatchObject({ phase: "interrupted", answer: "half an ans" });
    vi.advanceTimersByTime(250);
    FakeSocket.last.greet();
    expect(FakeSocket.last.sent.map(({ type }) => type)).toEqual(["hello"]);
  });

  it("holds a generation until there is a connection", () => {
    const seen: string[] = [];
    const generation = connection.generate(REQUEST, ({ phase }) => seen.push(phase));
    expect(generation.phase).toBe("waiting");
    FakeSocket.last.hangUp(1006);
    expect(generation.phase).toBe("waiting");
    vi.advanceTimersByTime(250);
    FakeSocket.last.greet();
    expect(FakeSocket.last.asked).toMatchObject({ id: generation.id, ...REQUEST });
    expect(seen).toEqual(["sent"]);
  });

  it("cancels one that waits without a word to the server", () => {
    const generation = connection.generate(REQUEST, () => undefined);
    connection.cancel(generation);
    expect(generation.ended).toBe(true);
    FakeSocket.last.greet();
    expect(FakeSocket.last.sent.map(({ type }) => type)).toEqual(["hello"]);
  });

  it("names generations as the protocol asks, never twice", () => {
    FakeSocket.last.greet();
    const ids = Array.from({ length: 50 }, () => connection.generate(REQUEST, () => undefined).id);
    for (const id of ids) expect(id).toMatch(/^[A-Za-z0-9_-]{16,64}$/);
    expect(new Set(ids).size).toBe(50);
  });

  it("does not sit out a wait when the network is back", () => {
    FakeSocket.last.hangUp(1006);
    connection.wake();
    expect(FakeSocket.all).toHaveLength(2);
  });

  it("tests an open socket when the page wakes, and drops it if it is dead", () => {
    FakeSocket.last.greet();
    connection.wake();
    expect(FakeSocket.last.sent.at(-1)?.type).toBe("ping");
    vi.advanceTimersByTime(5_000);
    expect(FakeSocket.all[0]?.closedWith).toBe(4440);
    expect(state()).toMatchObject({ name: "waiting", code: 4440 });
  });

  it("keeps beating while the server is silent but alive", () => {
    FakeSocket.last.greet();
    for (let beat = 0; beat < 4; beat += 1) {
      vi.advanceTimersByTime(15_000);
      const ping = FakeSocket.last.sent.at(-1);
      expect(ping?.type).toBe("ping");
      FakeSocket.last.say({ type: "pong", t: ping?.t });
    }
    expect(state()?.name).toBe("ready");
  });

  it("does not hear a socket it has replaced", () => {
    const old = FakeSocket.last;
    connection.connect();
    old.onclose?.({ code: 1006 });
    expect(state()).toEqual({ name: "connecting" });
  });
});

describe("close codes", () => {
  it("reconnect on the codes the protocol names and never on 4400 to 4406", () => {
    for (const code of [1001, 1005, 1006, 1011, 1012, 1013, 4440, 4441])
      expect([code, closeVerdict(code)]).toEqual([code, "reconnect"]);
    for (const code of [4400, 4402, 4403, 4404, 4405, 4406, 4409, 4429, 1000, 1009])
      expect([code, closeVerdict(code)]).toEqual([code, "refused"]);
    expect(closeVerdict(4401)).toBe("unauthorized");
  });
});

describe("the back-off", () => {
  it("draws between nothing and a ceiling that doubles from 0.5 s to 30 s", () => {
    const longest = new Backoff(() => 1);
    expect(Array.from({ length: 8 }, () => longest.nextDelayMs())).toEqual([
      500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000,
    ]);
    expect(new Backoff(() => 0).nextDelayMs()).toBe(0);
  });
});
