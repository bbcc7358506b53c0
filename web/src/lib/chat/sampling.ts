/**
 * The sampling settings a person can change: their defaults, limits and words, and their form on the wire.
 *
 * Owns: the table `SAMPLING_FIELDS`; the limits are the server's own, so that a wrong value is caught while typing.
 * Must not know: the user interface, the connection.
 */
import type { SamplingSettings } from "../history/schema";
import type { WireSampling } from "../protocol/messages";

/** Careful rather than lively: small models, such as the default one, soon lose the thread. */
export const DEFAULT_SAMPLING: Readonly<SamplingSettings> = {
  temperature: 0.3,
  top_p: 0.9,
  top_k: 0,
  min_p: 0.05,
  repetition_penalty: 1.05,
  max_tokens: null,
  seed: null,
  stop: [],
};

export const MAX_STOP_STRINGS = 64;
export const MAX_STOP_BYTES = 1024;

export type NumberField = Exclude<keyof SamplingSettings, "stop">;

export interface FieldSpec {
  name: NumberField;
  label: string;
  hint: string;
  min: number;
  max: number;
  step: number;
  integer: boolean;
  /** What an empty box means; fields without it need a number. */
  whenEmpty?: string;
  /** Fields with a narrow range have a slider. */
  slider?: { min: number; max: number };
}

export const SAMPLING_FIELDS: readonly FieldSpec[] = [
  {
    name: "temperature",
    label: "Temperature",
    hint: "0 always takes the likeliest token; higher is more varied.",
    min: 0,
    max: 100,
    step: 0.05,
    integer: false,
    slider: { min: 0, max: 2 },
  },
  {
    name: "top_p",
    label: "Top p",
    hint: "Keep the likeliest tokens that make up this share of the probability.",
    min: 0.01,
    max: 1,
    step: 0.01,
    integer: false,
    slider: { min: 0.01, max: 1 },
  },
  {
    name: "min_p",
    label: "Min p",
    hint: "Drop tokens less likely than this share of the likeliest one.",
    min: 0,
    max: 1,
    step: 0.01,
    integer: false,
    slider: { min: 0, max: 1 },
  },
  {
    name: "repetition_penalty",
    label: "Repetition penalty",
    hint: "Above 1 makes tokens that were already used less likely.",
    min: 0.01,
    max: 10,
    step: 0.01,
    integer: false,
    slider: { min: 0.8, max: 2 },
  },
  {
    name: "top_k",
    label: "Top k",
    hint: "Keep only this many of the likeliest tokens; 0 keeps all.",
    min: 0,
    max: 1_000_000,
    step: 1,
    integer: true,
  },
  {
    name: "max_tokens",
    label: "Max tokens",
    hint: "The longest answer.",
    min: 1,
    max: 10_000_000,
    step: 1,
    integer: true,
    whenEmpty: "what fits",
  },
  {
    name: "seed",
    label: "Seed",
    hint: "The same seed, settings and messages give the same answer.",
    min: 0,
    max: Number.MAX_SAFE_INTEGER,
    step: 1,
    integer: true,
    whenEmpty: "random",
  },
];

/** The number in a text box, or what is wrong with it. Empty is null where the field allows that. */
export function readField(
  spec: FieldSpec,
  typed: string,
): { value: number | null; problem: null } | { problem: string } {
  const trimmed = typed.trim();
  if (trimmed === "") {
    return spec.whenEmpty === undefined
      ? { problem: `${spec.label} needs a number.` }
      : { value: null, problem: null };
  }
  const value = Number(trimmed.replace(",", "."));
  if (!Number.isFinite(value)) return { problem: `${spec.label} needs a number, not “${trimmed}”.` };
  if (spec.integer && !Number.isInteger(value)) return { problem: `${spec.label} needs a whole number.` };
  if (value < spec.min || value > spec.max)
    return { problem: `${spec.label} must be between ${spec.min} and ${spec.max}.` };
  return { value, problem: null };
}

/** One stop string per line; \n and \t stand for themselves typed out. */
export function readStop(typed: string): { value: string[]; problem: null } | { problem: string } {
  const value = typed
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => line.replaceAll("\\n", "\n").replaceAll("\\t", "\t"));
  if (value.length > MAX_STOP_STRINGS)
    return { problem: `At most ${MAX_STOP_STRINGS} stop strings; these are ${value.length}.` };
  const encoder = new TextEncoder();
  const long = value.find((stop) => encoder.encode(stop).length > MAX_STOP_BYTES);
  if (long !== undefined)
    return { problem: `A stop string may have ${MAX_STOP_BYTES} bytes; “${long.slice(0, 20)}…” has more.` };
  return { value, problem: null };
}

export function writeStop(stop: readonly string[]): string {
  return stop.map((s) => s.replaceAll("\n", "\\n").replaceAll("\t", "\\t")).join("\n");
}

export function toWire(settings: SamplingSettings): WireSampling {
  const { max_tokens, seed, stop, ...numbers } = settings;
  return {
    ...numbers,
    ...(max_tokens === null ? {} : { max_tokens }),
    ...(seed === null ? {} : { seed }),
    ...(stop.length === 0 ? {} : { stop: [...stop] }),
  };
}
