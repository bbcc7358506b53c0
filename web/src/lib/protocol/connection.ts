/**
 * The lasting connection: one WebSocket at a time, replaced when it ends for a reason that passes.
 *
 * Owns: the socket, the timers, reconnecting, generations that wait for a connection.
 * Invariants: at most one socket; its late events after being replaced are not heard; a generation that was
 * sent is never sent again by itself (that is the reader's choice), one that was not yet sent waits for `ready`.
 * Must not know: the user interface. All protocol decisions are the session's.
 */
import { Backoff } from "./backoff";
import { closeVerdict, closeWords } from "./close_codes";
import { Generation } from "./generation";
import { type GenerateRequest, type Ready, SUBPROTOCOL, type WireError } from "./messages";
import { type Output, Session } from "./session";

export type ConnectionState =
  | { name: "connecting" }
  | { name: "ready"; ready: Ready }
  | { name: "waiting"; code: number; words: string; retryAtMs: number }
  | { name: "unauthorized"; keyWasSent: boolean }
  | { name: "refused"; code: number; words: string };

export interface ConnectionOptions {
  url: string;
  client: { name: string; version: string };
  /** Asked anew at each attempt. */
  token: () => string | undefined;
  onState: (state: ConnectionState) => void;
  onError: (error: WireError) => void;
  random?: () => number;
}

type Observer = (generation: Generation) => void;

/** 144 random bits; `crypto.randomUUID` does not exist on plain http pages of other machines. */
function newId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(18));
  return btoa(String.fromCharCode(...bytes))
    .replaceAll("+", "-")
    .replaceAll("/", "_");
}

export class Connection {
  readonly #options: ConnectionOptions;
  readonly #backoff: Backoff;
  readonly #observers = new Map<string, Observer>();
  readonly #waiting = new Map<Generation, GenerateRequest>();
  #socket: WebSocket | null = null;
  #session: Session | null = null;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #keyWasSent = false;
  #reconnectAfterMs = 0;

  constructor(options: ConnectionOptions) {
    this.#options = options;
    this.#backoff = new Backoff(options.random);
  }

  /** Connects now, whatever was being waited for. */
  connect(): void {
    this.#drop();
    this.#reconnectAfterMs = 0;
    const token = this.#options.token();
    this.#keyWasSent = token !== undefined;
    const session = new Session({ client: this.#options.client, ...(token === undefined ? {} : { token }) });
    const socket = new WebSocket(this.#options.url, SUBPROTOCOL);
    this.#session = session;
    this.#socket = socket;
    this.#options.onState({ name: "connecting" });
    socket.onopen = () => this.#act(session.open(Date.now()));
    socket.onmessage = ({ data }: MessageEvent<unknown>) => {
      if (typeof data === "string") this.#act(session.receive(data, Date.now()));
    };
    socket.onclose = ({ code }) => this.#ended(code);
  }

  /** Ends the connection for good. */
  close(): void {
    this.#drop();
  }

  /** The network is back, or the tab is shown again: do not sit out a wait, do not trust an old socket. */
  wake(): void {
    if (this.#socket === null) {
      if (this.#timer !== undefined) this.connect();
    } else if (this.#session !== null) {
      this.#act(this.#session.wake(Date.now()));
    }
  }

  /** Starts a generation, at once or as soon as there is a connection. */
  generate(request: GenerateRequest, observer: Observer): Generation {
    const generation = new Generation(newId());
    this.#observers.set(generation.id, observer);
    if (this.#session?.ready) this.#act(this.#session.generate(generation, request, Date.now()));
    else this.#waiting.set(generation, request);
    return generation;
  }

  cancel(generation: Generation): void {
    if (this.#waiting.delete(generation)) {
      generation.interrupt();
      this.#tell(generation);
    } else if (this.#session !== null) {
      this.#act(this.#session.cancel(generation.id, Date.now()));
    }
  }

  #act(output: Output): void {
    for (const frame of output.send) this.#socket?.send(frame);
    for (const event of output.events) {
      switch (event.type) {
        case "ready":
          this.#becomeReady(event.ready);
          break;
        case "generation":
          this.#tell(event.generation);
          break;
        case "error":
          this.#options.onError(event.error);
          break;
        case "going_away":
          this.#reconnectAfterMs = event.notice.reconnect_after_ms;
          break;
      }
    }
    if (output.close !== null) {
      // A browser waits long for a dead peer's close: take it as closed now.
      this.#socket?.close(output.close.code, output.close.reason.slice(0, 100));
      this.#ended(output.close.code);
    } else this.#schedulePoll();
  }

  #becomeReady(ready: Ready): void {
    this.#backoff.reset();
    this.#options.onState({ name: "ready", ready });
    const waiting = [...this.#waiting];
    this.#waiting.clear();
    for (const [generation, request] of waiting) {
      if (this.#session !== null) this.#act(this.#session.generate(generation, request, Date.now()));
    }
  }

  #tell(generation: Generation): void {
    this.#observers.get(generation.id)?.(generation);
    if (generation.ended) this.#observers.delete(generation.id);
  }

  #schedulePoll(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const session = this.#session;
    const at = session?.nextPollMs() ?? Number.POSITIVE_INFINITY;
    if (session === null || !Number.isFinite(at)) return;
    this.#timer = setTimeout(() => this.#act(session.poll(Date.now())), Math.max(0, at - Date.now()));
  }

  #ended(code: number): void {
    this.#drop();
    const words = closeWords(code);
    switch (closeVerdict(code)) {
      case "reconnect": {
        const delayMs = this.#backoff.nextDelayMs(this.#reconnectAfterMs);
        this.#timer = setTimeout(() => this.connect(), delayMs);
        this.#options.onState({ name: "waiting", code, words, retryAtMs: Date.now() + delayMs });
        break;
      }
      case "unauthorized":
        this.#options.onState({ name: "unauthorized", keyWasSent: this.#keyWasSent });
        break;
      case "refused":
        this.#options.onState({ name: "refused", code, words });
        break;
    }
  }

  /** Lets go of the socket and its timer; running answers learn that they are cut off. */
  #drop(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const socket = this.#socket;
    const session = this.#session;
    this.#socket = null;
    this.#session = null;
    if (socket !== null) {
      socket.onopen = socket.onmessage = socket.onclose = null;
      socket.close();
    }
    for (const event of session?.end().events ?? []) {
      if (event.type === "generation") this.#tell(event.generation);
    }
  }
}
