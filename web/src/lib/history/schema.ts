/**
 * What a kept chat looks like, and how to read one that an older or broken page wrote.
 *
 * Owns: the record format and its version. Messages form a tree: an edited question or a regenerated answer is
 * a sibling of the first, and `leafId` names the end of the branch that is shown.
 * Invariants: `readChat` never throws and never returns a chat that breaks the page; a record of a newer
 * version is left alone (null), not overwritten.
 * Must not know: where records are kept.
 */
import type { FinishReason, Timing, Usage } from "../protocol/messages";

export const SCHEMA_VERSION = 1;

/** Sampling of one chat; null means "the server's own default". */
export interface SamplingSettings {
  temperature: number;
  top_p: number;
  top_k: number;
  min_p: number;
  repetition_penalty: number;
  max_tokens: number | null;
  seed: number | null;
  stop: string[];
}

export interface UserMessage {
  role: "user";
  id: string;
  parentId: string | null;
  createdAtMs: number;
  text: string;
}

/** running: being written; stopped: by the reader; interrupted: the connection or the page ended under it. */
export type AnswerState = "running" | "complete" | "stopped" | "interrupted" | "failed";

export interface AnswerFailure {
  code: string;
  message: string;
}

export interface AnswerMessage {
  role: "assistant";
  id: string;
  parentId: string | null;
  createdAtMs: number;
  text: string;
  reasoning: string;
  state: AnswerState;
  model: string | null;
  finishReason: FinishReason | null;
  usage: Usage | null;
  timing: Timing | null;
  cost: number | null;
  costPer1kTokens: number | null;
  failure: AnswerFailure | null;
}

export type Message = UserMessage | AnswerMessage;

export interface Chat {
  schema: typeof SCHEMA_VERSION;
  id: string;
  title: string;
  /** Written by a person, so a new first question must not replace it. */
  titleIsCustom: boolean;
  createdAtMs: number;
  updatedAtMs: number;
  model: string | null;
  systemPrompt: string;
  sampling: SamplingSettings;
  messages: Message[];
  leafId: string | null;
}

export interface ChatSummary {
  id: string;
  title: string;
  createdAtMs: number;
  updatedAtMs: number;
}

export function summaryOf({ id, title, createdAtMs, updatedAtMs }: Chat): ChatSummary {
  return { id, title, createdAtMs, updatedAtMs };
}

type Fields = Record<string, unknown>;

const isFields = (value: unknown): value is Fields => typeof value === "object" && value !== null;
const text = (value: unknown): string => (typeof value === "string" ? value : "");
const textOrNull = (value: unknown): string | null => (typeof value === "string" ? value : null);
const number = (value: unknown, fallback: number): number =>
  typeof value === "number" && Number.isFinite(value) ? value : fallback;
const numberOrNull = (value: unknown): number | null =>
  typeof value === "number" && Number.isFinite(value) ? value : null;

export function readSampling(value: unknown, defaults: SamplingSettings): SamplingSettings {
  const from = isFields(value) ? value : {};
  const maybe = (name: "max_tokens" | "seed"): number | null =>
    name in from ? numberOrNull(from[name]) : defaults[name];
  return {
    temperature: number(from.temperature, defaults.temperature),
    top_p: number(from.top_p, defaults.top_p),
    top_k: number(from.top_k, defaults.top_k),
    min_p: number(from.min_p, defaults.min_p),
    repetition_penalty: number(from.repetition_penalty, defaults.repetition_penalty),
    max_tokens: maybe("max_tokens"),
    seed: maybe("seed"),
    stop: Array.isArray(from.stop) ? from.stop.filter((s) => typeof s === "string") : [...defaults.stop],
  };
}

function readMessage(value: unknown): Message | null {
  if (!isFields(value) || typeof value.id !== "string") return null;
  const base = {
    id: value.id,
    parentId: textOrNull(value.parentId),
    createdAtMs: number(value.createdAtMs, 0),
    text: text(value.text),
  };
  if (value.role === "user") return { role: "user", ...base };
  if (value.role !== "assistant") return null;
  const state = value.state as AnswerState;
  const isEnded = ["complete", "stopped", "interrupted", "failed"].includes(state);
  const failure = isFields(value.failure)
    ? { code: text(value.failure.code), message: text(value.failure.message) }
    : null;
  return {
    role: "assistant",
    ...base,
    reasoning: text(value.reasoning),
    // Whoever wrote it is gone: a page that still writes it has its own copy in memory.
    state: isEnded ? state : "interrupted",
    model: textOrNull(value.model),
    finishReason: textOrNull(value.finishReason) as FinishReason | null,
    usage: isFields(value.usage) ? (value.usage as unknown as Usage) : null,
    timing: isFields(value.timing) ? (value.timing as Timing) : null,
    cost: numberOrNull(value.cost),
    costPer1kTokens: numberOrNull(value.costPer1kTokens),
    failure,
  };
}

/** The chat in a record, mended where needed; null if it is not one of ours or of a newer version. */
export function readChat(value: unknown, defaults: SamplingSettings): Chat | null {
  if (!isFields(value) || typeof value.id !== "string") return null;
  if (number(value.schema, 0) > SCHEMA_VERSION) return null;
  const messages: Message[] = [];
  const known = new Set<string>();
  for (const item of Array.isArray(value.messages) ? value.messages : []) {
    const message = readMessage(item);
    if (message === null || known.has(message.id)) continue;
    // Parents come first, so there can be no cycle; an orphan starts a branch of its own.
    if (message.parentId !== null && !known.has(message.parentId)) message.parentId = null;
    known.add(message.id);
    messages.push(message);
  }
  const leafId = textOrNull(value.leafId);
  return {
    schema: SCHEMA_VERSION,
    id: value.id,
    title: text(value.title) || "Untitled",
    titleIsCustom: value.titleIsCustom === true,
    createdAtMs: number(value.createdAtMs, 0),
    updatedAtMs: number(value.updatedAtMs, 0),
    model: textOrNull(value.model),
    systemPrompt: text(value.systemPrompt),
    sampling: readSampling(value.sampling, defaults),
    messages,
    leafId: leafId !== null && known.has(leafId) ? leafId : (messages.at(-1)?.id ?? null),
  };
}
