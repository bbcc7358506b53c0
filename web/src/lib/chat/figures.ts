/**
 * The figures of an answer in words: the short line under it, and the full table.
 *
 * Owns: names and units as a person reads them. Figures that an answer does not have are left out, never shown as 0.
 * Must not know: components.
 */
import type { AnswerMessage } from "../history/schema";

export interface Figure {
  label: string;
  value: string;
}

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const oneDigit = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const money = new Intl.NumberFormat("en", { maximumSignificantDigits: 3, maximumFractionDigits: 12 });

export function formatMs(ms: number): string {
  if (ms < 10) return `${oneDigit.format(ms)} ms`;
  if (ms < 1000) return `${whole.format(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(ms < 10_000 ? 2 : 1)} s`;
  return `${Math.floor(ms / 60_000)} min ${whole.format((ms % 60_000) / 1000)} s`;
}

export function formatTokens(count: number): string {
  return whole.format(count);
}

export function formatBytes(bytes: number): string {
  const units = ["B", "KiB", "MiB", "GiB"];
  let value = bytes;
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${oneDigit.format(value)} ${units[unit]}`;
}

/** A price in whatever currency the operator counts in. */
export function formatCost(cost: number): string {
  return money.format(cost);
}

function figures(
  entries: [label: string, value: number | null | undefined, format: (n: number) => string][],
) {
  return entries.flatMap(([label, value, format]): Figure[] =>
    value === null || value === undefined ? [] : [{ label, value: format(value) }],
  );
}

/** The line under an answer. */
export function headline({ timing, usage, cost }: AnswerMessage): Figure[] {
  return figures([
    ["first token", timing?.ttft_ms, formatMs],
    ["tokens/s", timing?.tokens_per_second, (n) => oneDigit.format(n)],
    ["queued", timing?.queue_ms, formatMs],
    ["prompt", usage?.prompt_tokens, formatTokens],
    ["cached", usage?.cached_tokens, formatTokens],
    ["completion", usage?.completion_tokens, formatTokens],
    ["cost", cost, formatCost],
  ]);
}

const FINISH_WORDS: Record<string, string> = {
  stop: "the model ended it",
  length: "token limit reached",
  cancelled: "stopped by you",
  tool_calls: "the model called a tool",
};

/** Everything the server told about an answer. */
export function allFigures(answer: AnswerMessage): Figure[] {
  const { timing, usage, cost, costPer1kTokens, finishReason, model } = answer;
  const rows = figures([
    ["Time to first token", timing?.ttft_ms, formatMs],
    ["Queue", timing?.queue_ms, formatMs],
    ["Prefill", timing?.prefill_ms, formatMs],
    ["Decode", timing?.decode_ms, formatMs],
    ["Total", timing?.total_ms, formatMs],
    ["Between tokens, p50", timing?.inter_token_p50_ms, formatMs],
    ["Between tokens, p99", timing?.inter_token_p99_ms, formatMs],
    ["Tokens per second", timing?.tokens_per_second, (n) => oneDigit.format(n)],
    ["Prompt tokens", usage?.prompt_tokens, formatTokens],
    ["Cached tokens", usage?.cached_tokens, formatTokens],
    ["Completion tokens", usage?.completion_tokens, formatTokens],
    ["KV memory, peak", timing?.kv_cache_peak_bytes, formatBytes],
    ["Preemptions", timing?.preemptions, formatTokens],
    ["Share of compute", timing?.busy_ms, formatMs],
    ["Cost", cost, formatCost],
    ["Cost per 1k tokens", costPer1kTokens, formatCost],
  ]);
  if (finishReason !== null)
    rows.push({ label: "Ended because", value: FINISH_WORDS[finishReason] ?? finishReason });
  if (model !== null) rows.push({ label: "Model", value: model });
  return rows;
}

export interface Span {
  kind: "queue" | "prefill" | "decode";
  label: string;
  /** Of the whole, 0 to 1. */
  start: number;
  share: number;
}

/** How the answer's time was spent, in order. */
export function timeline({ timing }: AnswerMessage): Span[] {
  const parts = [
    { kind: "queue", label: "Queue", ms: timing?.queue_ms ?? 0 },
    { kind: "prefill", label: "Prefill", ms: timing?.prefill_ms ?? 0 },
    { kind: "decode", label: "Decode", ms: timing?.decode_ms ?? 0 },
  ] as const;
  const totalMs = parts.reduce((sum, { ms }) => sum + ms, 0);
  if (totalMs <= 0) return [];
  let start = 0;
  return parts.map(({ kind, label, ms }) => {
    const span = { kind, label, start, share: ms / totalMs };
    start += span.share;
    return span;
  });
}
