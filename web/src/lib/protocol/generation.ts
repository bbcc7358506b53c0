/**
 * One generation as this client has seen it so far: its text, where it is, how it ended.
 *
 * Invariants: `seq` is gapless, a frame seen before changes nothing; once ended, nothing changes any more;
 * a text whose length is not what the server counted is a failure, not an answer.
 * Must not know: sockets, other generations, the user interface.
 */
import type { Accepted, Done, EngineState, StreamMessage, WireError } from "./messages";

export type Phase = "waiting" | "sent" | EngineState | "done" | "failed" | "interrupted";

export type Failure = Pick<WireError, "code" | "message" | "retryable"> &
  Partial<Pick<WireError, "retry_after_ms" | "param">>;

export interface Progress {
  position?: number;
  eta_ms?: number;
  done?: number;
  total?: number;
}

function codePoints(text: string): number {
  let count = 0;
  for (const _ of text) count += 1;
  return count;
}

export class Generation {
  readonly id: string;
  phase: Phase = "waiting";
  answer = "";
  reasoning = "";
  completionTokens = 0;
  progress: Progress = {};
  accepted: Accepted | null = null;
  done: Done | null = null;
  failure: Failure | null = null;
  #nextSeq = 0;
  #chars = 0;

  constructor(id: string) {
    this.id = id;
  }

  get ended(): boolean {
    return this.phase === "done" || this.phase === "failed" || this.phase === "interrupted";
  }

  /** Takes the server's next word about this generation; false if it changed nothing. */
  apply(message: StreamMessage): boolean {
    if (this.ended) return false;
    // An error refused at the door may carry no seq: nothing of the stream has begun.
    if (message.seq !== undefined) {
      if (message.seq < this.#nextSeq) return false;
      if (message.seq > this.#nextSeq) {
        this.fail({
          code: "sequence_gap",
          message: `A part of the answer was lost: expected event ${this.#nextSeq}, got ${message.seq}.`,
          retryable: true,
        });
        return true;
      }
      this.#nextSeq += 1;
    }
    switch (message.type) {
      case "accepted":
        this.accepted = message;
        this.phase = "queued";
        break;
      case "status": {
        const { type: _type, id: _id, seq: _seq, state, ...progress } = message;
        this.phase = state;
        this.progress = progress;
        break;
      }
      case "delta":
        // This page asks for one answer; others of the same request are not its own.
        if (message.index !== 0) break;
        this.phase = "decode";
        this.completionTokens = message.n;
        this.#chars += codePoints(message.text);
        if (message.channel === "reasoning") this.reasoning += message.text;
        else this.answer += message.text;
        break;
      case "done":
        this.#finish(message);
        break;
      case "error":
        this.fail(message);
        break;
    }
    return true;
  }

  #finish(done: Done): void {
    this.completionTokens = done.usage.completion_tokens;
    if (done.chars !== undefined && done.chars !== this.#chars) {
      this.fail({
        code: "text_mismatch",
        message: `The answer arrived damaged: the server sent ${done.chars} characters, ${this.#chars} came.`,
        retryable: true,
      });
      return;
    }
    this.done = done;
    this.phase = "done";
  }

  fail(failure: Failure): void {
    const { code, message, retryable, retry_after_ms, param } = failure;
    this.failure = { code, message, retryable };
    if (retry_after_ms !== undefined) this.failure.retry_after_ms = retry_after_ms;
    if (param !== undefined) this.failure.param = param;
    this.phase = "failed";
  }

  /** The connection ended under it. What came so far stays. */
  interrupt(): void {
    if (!this.ended) this.phase = "interrupted";
  }
}
