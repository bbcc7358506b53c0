/**
 * The words of `pagurid.v1`: every frame this page sends or understands, as types.
 *
 * Owns: field names, exactly as on the wire (snake_case, units in the name).
 * Must not know: sockets, state, the user interface.
 */

export const SUBPROTOCOL = "pagurid.v1";
export const PROTOCOL_VERSION = 1;

export type Role = "system" | "user" | "assistant";

export interface WireMessage {
  role: Role;
  content: string;
}

/** Sampling as the OpenAI API names it, plus the extensions; absent fields take the server's defaults. */
export interface WireSampling {
  temperature?: number;
  top_p?: number;
  top_k?: number;
  min_p?: number;
  repetition_penalty?: number;
  max_tokens?: number;
  seed?: number;
  stop?: string[];
}

export interface GenerateRequest {
  messages: WireMessage[];
  model?: string;
  sampling?: WireSampling;
}

export type ClientMessage =
  | { type: "hello"; protocol: number; token?: string; client: { name: string; version: string } }
  | ({ type: "generate"; id: string } & GenerateRequest)
  | { type: "cancel"; id: string }
  | { type: "ping"; t: number }
  | { type: "pong"; t: unknown };

export interface ServedModel {
  id: string;
  context_length: number;
}

export interface Ready {
  type: "ready";
  protocol: number;
  epoch: string;
  server: { name: string; version: string };
  models: ServedModel[];
  limits: { max_frame_bytes?: number };
  heartbeat_ms: number;
}

export interface Accepted {
  type: "accepted";
  id: string;
  seq: number;
  model: string;
  prompt_tokens: number;
  cached_tokens: number;
  max_tokens: number;
}

export const ENGINE_STATES = ["queued", "prefill", "decode", "preempted"] as const;
export type EngineState = (typeof ENGINE_STATES)[number];

/** Where a request is: `position` in the queue from 0; `done` and `total` count prompt tokens. */
export interface Status {
  type: "status";
  id: string;
  seq: number;
  state: EngineState;
  position?: number;
  eta_ms?: number;
  done?: number;
  total?: number;
}

export interface Delta {
  type: "delta";
  id: string;
  seq: number;
  text: string;
  channel: "answer" | "reasoning";
  index: number;
  n: number;
}

export interface Usage {
  prompt_tokens: number;
  cached_tokens: number;
  completion_tokens: number;
}

/** The figures of one request; those that had no event (no token, one token) are absent. */
export const TIMING_FIELDS = [
  "queue_ms",
  "prefill_ms",
  "ttft_ms",
  "decode_ms",
  "total_ms",
  "inter_token_p50_ms",
  "inter_token_p99_ms",
  "tokens_per_second",
  "preemptions",
  "kv_cache_peak_bytes",
  "busy_ms",
] as const;
export type Timing = Partial<Record<(typeof TIMING_FIELDS)[number], number>>;

export const FINISH_REASONS = ["stop", "length", "cancelled", "tool_calls"] as const;
export type FinishReason = (typeof FINISH_REASONS)[number];

export interface Done {
  type: "done";
  id: string;
  seq: number;
  finish_reason: FinishReason;
  usage: Usage;
  timing: Timing;
  cost?: number;
  cost_per_1k_tokens?: number;
  /** Code points of the whole text. */
  chars?: number;
}

export interface WireError {
  type: "error";
  code: string;
  message: string;
  retryable: boolean;
  retry_after_ms?: number;
  id?: string;
  seq?: number;
  param?: string;
}

export interface GoingAway {
  type: "going_away";
  reason: string;
  reconnect_after_ms: number;
}

/** A frame about one generation. */
export type StreamMessage = Accepted | Status | Delta | Done | (WireError & { id: string });

export type ServerMessage =
  | Ready
  | Accepted
  | Status
  | Delta
  | Done
  | WireError
  | GoingAway
  | { type: "ping"; t: unknown }
  | { type: "pong"; t: unknown };
