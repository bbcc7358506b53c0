/** A WebSocket without a network: the test is the server. */
import { vi } from "vitest";

export class FakeSocket {
  static all: FakeSocket[] = [];
  static get last(): FakeSocket {
    const socket = FakeSocket.all.at(-1);
    if (socket === undefined) throw new Error("no socket was opened");
    return socket;
  }

  onopen: (() => void) | null = null;
  onmessage: ((event: { data: unknown }) => void) | null = null;
  onclose: ((event: { code: number }) => void) | null = null;
  readonly sent: Array<Record<string, unknown> & { type: string }> = [];
  closedWith: number | null = null;
  readonly url: string;
  readonly protocol: string;

  constructor(url: string, protocol: string) {
    this.url = url;
    this.protocol = protocol;
    FakeSocket.all.push(this);
  }

  send(frame: string): void {
    this.sent.push(JSON.parse(frame));
  }

  close(code = 1005): void {
    this.closedWith ??= code;
  }

  /** The server's side. */
  open(): void {
    this.onopen?.();
  }

  say(message: object): void {
    this.onmessage?.({ data: JSON.stringify(message) });
  }

  greet(extra: object = {}): void {
    this.open();
    this.say({ ...READY, ...extra });
  }

  hangUp(code: number): void {
    this.onclose?.({ code });
  }

  /** The last generate frame that came. */
  get asked(): Record<string, unknown> & { id: string } {
    const frame = this.sent.findLast(({ type }) => type === "generate");
    if (frame === undefined) throw new Error("nothing was asked");
    return { ...frame, id: String(frame.id) };
  }
}

export const READY = {
  type: "ready",
  protocol: 1,
  epoch: "e",
  server: { name: "pagurid", version: "0" },
  models: [{ id: "tiny", context_length: 128 }],
  limits: { max_streams: 8, max_frame_bytes: 4096, window_bytes: 1024, replay_bytes: 1024, replay_s: 300 },
  heartbeat_ms: 15_000,
};

/** All that a server says about one generation, with the sequence numbers counted. */
export function script(socket: FakeSocket, id: string) {
  let seq = 0;
  let text = "";
  const say = (message: object) => socket.say({ ...message, id, seq: seq++ });
  return {
    accept: () =>
      say({ type: "accepted", model: "tiny", prompt_tokens: 5, cached_tokens: 2, max_tokens: 100 }),
    status: (state: string, progress: object = {}) => say({ type: "status", state, ...progress }),
    delta: (piece: string) => {
      text += piece;
      say({ type: "delta", text: piece, channel: "answer", n: seq });
    },
    done: (finish_reason = "stop", extra: object = {}) =>
      say({
        type: "done",
        finish_reason,
        usage: { prompt_tokens: 5, cached_tokens: 2, completion_tokens: 3 },
        timing: { queue_ms: 1, ttft_ms: 20, tokens_per_second: 50, prefill_ms: 19, decode_ms: null },
        chars: [...text].length,
        ...extra,
      }),
    error: (code: string, message: string, retryable = false) =>
      say({ type: "error", code, message, retryable }),
  };
}

export function installFakeSocket(): void {
  FakeSocket.all = [];
  vi.stubGlobal("WebSocket", FakeSocket);
}
