/**
 * Text of a frame → a typed server message.
 *
 * Owns: what counts as a well-formed frame. Unknown types and unknown fields are ignored, as the
 * protocol asks; a known type with a missing or mistyped field is a `MalformedFrame` that says which.
 * Must not know: state, sockets.
 */
import {
  ENGINE_STATES,
  FINISH_REASONS,
  type ServedModel,
  type ServerMessage,
  TIMING_FIELDS,
  type Timing,
} from "./messages";

export class MalformedFrame extends Error {
  override name = "MalformedFrame";
}

type Fields = Record<string, unknown>;

function isFields(value: unknown): value is Fields {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Reads fields of one frame; errors name the frame's type and the field's path. */
class Reader {
  readonly #fields: Fields;
  readonly #path: string;

  constructor(fields: Fields, path: string) {
    this.#fields = fields;
    this.#path = path;
  }

  #fail(name: string, expected: string): never {
    const value = this.#fields[name];
    const came = value === undefined ? "nothing" : (JSON.stringify(value) ?? String(value)).slice(0, 80);
    throw new MalformedFrame(`${this.#path}.${name}: expected ${expected}, got ${came}`);
  }

  raw(name: string): unknown {
    return this.#fields[name];
  }

  string(name: string): string {
    const value = this.#fields[name];
    return typeof value === "string" ? value : this.#fail(name, "a string");
  }

  number(name: string): number {
    const value = this.#fields[name];
    return typeof value === "number" && Number.isFinite(value) ? value : this.#fail(name, "a number");
  }

  /** Absent and null mean the same: there is no such figure. */
  optionalNumber(name: string): number | undefined {
    return this.#fields[name] == null ? undefined : this.number(name);
  }

  optionalString(name: string): string | undefined {
    return this.#fields[name] == null ? undefined : this.string(name);
  }

  oneOf<const T extends readonly string[]>(name: string, choices: T): T[number] {
    const value = this.string(name);
    return choices.includes(value) ? value : this.#fail(name, `one of ${choices.join(", ")}`);
  }

  object(name: string): Reader {
    const value = this.#fields[name];
    return isFields(value) ? new Reader(value, `${this.#path}.${name}`) : this.#fail(name, "an object");
  }

  list(name: string): Reader[] {
    const value = this.#fields[name];
    if (!Array.isArray(value)) this.#fail(name, "a list");
    return value.map((item: unknown, at: number) =>
      isFields(item)
        ? new Reader(item, `${this.#path}.${name}[${at}]`)
        : this.#fail(name, "a list of objects"),
    );
  }
}

/** Drops what is undefined, so that an absent field stays absent. */
function present<T extends object>(fields: T): { [K in keyof T]: Exclude<T[K], undefined> } {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as never;
}

function readTiming(timing: Reader): Timing {
  return present(
    Object.fromEntries(TIMING_FIELDS.map((name) => [name, timing.optionalNumber(name)])),
  ) as Timing;
}

function readModel(model: Reader): ServedModel {
  return { id: model.string("id"), context_length: model.number("context_length") };
}

/** The message in a frame, or null for a type this client does not know. */
export function parseServerMessage(frame: string): ServerMessage | null {
  let value: unknown;
  try {
    value = JSON.parse(frame);
  } catch {
    throw new MalformedFrame(`expected JSON, got ${frame.slice(0, 80)}`);
  }
  if (!isFields(value)) throw new MalformedFrame(`expected a JSON object, got ${frame.slice(0, 80)}`);
  const type = new Reader(value, "frame").string("type");
  const read = new Reader(value, type);
  const stream = () => ({ id: read.string("id"), seq: read.number("seq") });
  switch (type) {
    case "ready": {
      const server = read.object("server");
      return {
        type,
        protocol: read.number("protocol"),
        epoch: read.string("epoch"),
        server: { name: server.string("name"), version: server.string("version") },
        models: read.list("models").map(readModel),
        limits: present({ max_frame_bytes: read.object("limits").optionalNumber("max_frame_bytes") }),
        heartbeat_ms: read.number("heartbeat_ms"),
      };
    }
    case "accepted":
      return {
        type,
        ...stream(),
        model: read.string("model"),
        prompt_tokens: read.number("prompt_tokens"),
        cached_tokens: read.optionalNumber("cached_tokens") ?? 0,
        max_tokens: read.number("max_tokens"),
      };
    case "status":
      return present({
        type,
        ...stream(),
        state: read.oneOf("state", ENGINE_STATES),
        position: read.optionalNumber("position"),
        eta_ms: read.optionalNumber("eta_ms"),
        done: read.optionalNumber("done"),
        total: read.optionalNumber("total"),
      }) as ServerMessage;
    case "delta":
      return {
        type,
        ...stream(),
        text: read.string("text"),
        channel: read.oneOf("channel", ["answer", "reasoning"]),
        index: read.optionalNumber("index") ?? 0,
        n: read.number("n"),
      };
    case "done": {
      const usage = read.object("usage");
      return present({
        type,
        ...stream(),
        finish_reason: read.oneOf("finish_reason", FINISH_REASONS),
        usage: {
          prompt_tokens: usage.number("prompt_tokens"),
          cached_tokens: usage.optionalNumber("cached_tokens") ?? 0,
          completion_tokens: usage.number("completion_tokens"),
        },
        timing: readTiming(read.object("timing")),
        cost: read.optionalNumber("cost"),
        cost_per_1k_tokens: read.optionalNumber("cost_per_1k_tokens"),
        chars: read.optionalNumber("chars"),
      }) as ServerMessage;
    }
    case "error":
      return present({
        type,
        code: read.string("code"),
        message: read.string("message"),
        retryable: read.raw("retryable") === true,
        retry_after_ms: read.optionalNumber("retry_after_ms"),
        id: read.optionalString("id"),
        seq: read.optionalNumber("seq"),
        param: read.optionalString("param"),
      }) as ServerMessage;
    case "going_away":
      return {
        type,
        reason: read.string("reason"),
        reconnect_after_ms: read.optionalNumber("reconnect_after_ms") ?? 0,
      };
    case "ping":
    case "pong":
      return { type, t: read.raw("t") };
    default:
      return null;
  }
}
