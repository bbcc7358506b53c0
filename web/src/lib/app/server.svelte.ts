/**
 * The server as the page sees it: connection state, models, and the key it asks for.
 *
 * Owns: the one `Connection`, and the API key (kept for this tab, or on this device if the person wants that).
 * Invariant: the key goes nowhere but into `hello`.
 */
import { Connection, type ConnectionState } from "../protocol/connection";
import type { ServedModel, WireError } from "../protocol/messages";
import { readLocal, writeLocal } from "./local_values";

const KEY = "api_key";
const session = () => sessionStorage;

export class Server {
  state = $state.raw<ConnectionState>({ name: "connecting" });
  /** Of the last `ready`; stays while reconnecting. */
  models = $state.raw<ServedModel[]>([]);
  version = $state.raw("");
  /** An error that belongs to no answer. */
  error = $state.raw<WireError | null>(null);
  readonly connection: Connection;
  #key: string | null = readLocal(KEY, session) ?? readLocal(KEY);

  constructor(url: string, version: string) {
    this.connection = new Connection({
      url,
      client: { name: "pagurid-web", version },
      token: () => this.#key ?? undefined,
      onState: (state) => {
        this.state = state;
        if (state.name === "ready") {
          this.models = state.ready.models;
          this.version = `${state.ready.server.name} ${state.ready.server.version}`;
          this.error = null;
        }
      },
      onError: (error) => {
        this.error = error;
      },
    });
  }

  get isReady(): boolean {
    return this.state.name === "ready";
  }

  /** Connects, and comes back at once when the network or the tab does. */
  start(): () => void {
    const wake = () => this.connection.wake();
    const shown = () => {
      if (document.visibilityState === "visible") wake();
    };
    window.addEventListener("online", wake);
    document.addEventListener("visibilitychange", shown);
    this.connection.connect();
    return () => {
      window.removeEventListener("online", wake);
      document.removeEventListener("visibilitychange", shown);
      this.connection.close();
    };
  }

  useKey(key: string, remember: boolean): void {
    this.#key = key === "" ? null : key;
    writeLocal(KEY, remember ? null : this.#key, session);
    writeLocal(KEY, remember ? this.#key : null);
    this.connection.connect();
  }

  modelNamed(id: string | null): ServedModel | undefined {
    return this.models.find((model) => model.id === id) ?? this.models[0];
  }
}

/** Beside the page, whatever path it is served under. */
export function socketUrl(base: string): string {
  const url = new URL("v1/ws", base);
  url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
  url.hash = url.search = "";
  return url.href;
}
