/**
 * One life of one connection, sans-I/O: frames and the time go in, frames to send and events come out.
 *
 * Owns: hello and ready, heartbeats both ways, which generation a frame belongs to.
 * Invariants: nothing but hello is sent before ready; after a close nothing is sent.
 * Must not know: WebSocket, timers, reconnecting (the connection above does), the user interface.
 */
import { CLOSE_HEARTBEAT_MISSED, CLOSE_MALFORMED } from "./close_codes";
import type { Generation } from "./generation";
import {
  type ClientMessage,
  type GenerateRequest,
  type GoingAway,
  PROTOCOL_VERSION,
  type Ready,
  type ServerMessage,
  type WireError,
} from "./messages";
import { MalformedFrame, parseServerMessage } from "./parse";

const READY_WITHIN_MS = 10_000;
const WAKE_ANSWER_WITHIN_MS = 5_000;

export type SessionEvent =
  | { type: "ready"; ready: Ready }
  | { type: "generation"; generation: Generation }
  | { type: "error"; error: WireError }
  | { type: "going_away"; notice: GoingAway };

export interface Output {
  send: string[];
  events: SessionEvent[];
  close: { code: number; reason: string } | null;
}

export interface SessionOptions {
  client: { name: string; version: string };
  token?: string;
}

export class Session {
  readonly #options: SessionOptions;
  readonly #running = new Map<string, Generation>();
  #ready: Ready | null = null;
  #closed = false;
  #lastSentMs = 0;
  #lastReceivedMs = 0;
  /** When the connection is dead unless a frame comes first; null while nothing is owed to us. */
  #deadlineMs: number | null = null;

  constructor(options: SessionOptions) {
    this.#options = options;
  }

  get ready(): Ready | null {
    return this.#ready;
  }

  /** The socket is open: greet. */
  open(nowMs: number): Output {
    const output = this.#output();
    const { client, token } = this.#options;
    this.#send(output, nowMs, {
      type: "hello",
      protocol: PROTOCOL_VERSION,
      client,
      ...(token === undefined ? {} : { token }),
    });
    this.#lastReceivedMs = nowMs;
    this.#deadlineMs = nowMs + READY_WITHIN_MS;
    return output;
  }

  receive(frame: string, nowMs: number): Output {
    const output = this.#output();
    if (this.#closed) return output;
    let message: ServerMessage | null;
    try {
      message = parseServerMessage(frame);
    } catch (error) {
      if (!(error instanceof MalformedFrame)) throw error;
      this.#close(output, CLOSE_MALFORMED, error.message);
      return output;
    }
    this.#lastReceivedMs = nowMs;
    if (this.#ready !== null || message?.type === "ready") this.#deadlineMs = null;
    if (message !== null) this.#take(output, nowMs, message);
    return output;
  }

  #take(output: Output, nowMs: number, message: ServerMessage): void {
    switch (message.type) {
      case "ready":
        this.#ready = message;
        output.events.push({ type: "ready", ready: message });
        break;
      case "ping":
        this.#send(output, nowMs, { type: "pong", t: message.t });
        break;
      case "pong":
        break;
      case "going_away":
        output.events.push({ type: "going_away", notice: message });
        break;
      case "error":
        if (message.id === undefined) output.events.push({ type: "error", error: message });
        else this.#advance(output, nowMs, { ...message, id: message.id });
        break;
      default:
        this.#advance(output, nowMs, message);
    }
  }

  #advance(output: Output, nowMs: number, message: Parameters<Generation["apply"]>[0]): void {
    const generation = this.#running.get(message.id);
    if (generation === undefined || !generation.apply(message)) return;
    if (generation.ended) this.#running.delete(generation.id);
    // Ended here while the server still works on it (a gap): tell the server to stop.
    if (generation.ended && message.type !== "done" && message.type !== "error")
      this.#send(output, nowMs, { type: "cancel", id: generation.id });
    output.events.push({ type: "generation", generation });
  }

  generate(generation: Generation, request: GenerateRequest, nowMs: number): Output {
    if (this.#ready === null) throw new Error("generate before ready");
    const output = this.#output();
    output.events.push({ type: "generation", generation });
    const message: ClientMessage = { type: "generate", id: generation.id, ...request };
    const limit = this.#ready.limits.max_frame_bytes ?? Number.POSITIVE_INFINITY;
    const bytes = new TextEncoder().encode(JSON.stringify(message)).length;
    if (bytes > limit) {
      // Sent anyway, it would cost the connection (1009) and every other answer on it.
      generation.fail({
        code: "frame_too_large",
        message: `This conversation is ${bytes} bytes long; the server takes at most ${limit} in one message.`,
        retryable: false,
      });
      return output;
    }
    this.#running.set(generation.id, generation);
    generation.phase = "sent";
    this.#send(output, nowMs, message);
    return output;
  }

  cancel(id: string, nowMs: number): Output {
    const output = this.#output();
    if (this.#running.has(id)) this.#send(output, nowMs, { type: "cancel", id });
    return output;
  }

  /** The time has come that `nextPollMs` named: ping a silent server, give up on a dead one. */
  poll(nowMs: number): Output {
    const output = this.#output();
    if (this.#closed) return output;
    if (this.#deadlineMs !== null && nowMs >= this.#deadlineMs) {
      this.#close(output, CLOSE_HEARTBEAT_MISSED, "no sign of life from the server");
    } else if (this.#ready !== null && nowMs >= this.nextPollMs()) {
      this.#ping(output, nowMs, Math.max(this.#ready.heartbeat_ms, WAKE_ANSWER_WITHIN_MS));
    }
    return output;
  }

  /** The page came back to life (network up, tab shown): the connection must prove itself soon. */
  wake(nowMs: number): Output {
    const output = this.#output();
    if (this.#ready !== null && !this.#closed) this.#ping(output, nowMs, WAKE_ANSWER_WITHIN_MS);
    return output;
  }

  /** When `poll` has something to do next; infinite while there is nothing to wait for. */
  nextPollMs(): number {
    if (this.#deadlineMs !== null) return this.#deadlineMs;
    if (this.#ready === null || this.#closed) return Number.POSITIVE_INFINITY;
    return Math.min(this.#lastSentMs, this.#lastReceivedMs) + this.#ready.heartbeat_ms;
  }

  /** The socket is closed, whoever did it: every running answer is cut off, its text kept. */
  end(): Output {
    const output = this.#output();
    this.#closed = true;
    for (const generation of this.#running.values()) {
      generation.interrupt();
      output.events.push({ type: "generation", generation });
    }
    this.#running.clear();
    return output;
  }

  #output(): Output {
    return { send: [], events: [], close: null };
  }

  #ping(output: Output, nowMs: number, answerWithinMs: number): void {
    const deadline = nowMs + answerWithinMs;
    this.#deadlineMs = Math.min(this.#deadlineMs ?? deadline, deadline);
    this.#send(output, nowMs, { type: "ping", t: nowMs });
  }

  #send(output: Output, nowMs: number, message: ClientMessage): void {
    this.#lastSentMs = nowMs;
    output.send.push(JSON.stringify(message));
  }

  #close(output: Output, code: number, reason: string): void {
    this.#closed = true;
    output.close = { code, reason };
  }
}
