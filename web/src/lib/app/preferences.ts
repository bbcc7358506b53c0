/**
 * What a new chat starts with: sampling and system prompt, as the person last made them the default.
 */
import { DEFAULT_SAMPLING } from "../chat/sampling";
import { readSampling, type SamplingSettings } from "../history/schema";
import { readLocal, writeLocal } from "./local_values";

export interface ChatDefaults {
  sampling: SamplingSettings;
  systemPrompt: string;
}

const NAME = "chat_defaults";

export function factoryDefaults(): ChatDefaults {
  return { sampling: { ...DEFAULT_SAMPLING, stop: [...DEFAULT_SAMPLING.stop] }, systemPrompt: "" };
}

export function chatDefaults(): ChatDefaults {
  const factory = factoryDefaults();
  try {
    const kept: unknown = JSON.parse(readLocal(NAME) ?? "null");
    if (typeof kept !== "object" || kept === null) return factory;
    const { sampling, systemPrompt } = kept as Partial<ChatDefaults>;
    return {
      sampling: readSampling(sampling, factory.sampling),
      systemPrompt: typeof systemPrompt === "string" ? systemPrompt : "",
    };
  } catch {
    return factory;
  }
}

export function keepChatDefaults({ sampling, systemPrompt }: ChatDefaults): void {
  writeLocal(NAME, JSON.stringify({ sampling, systemPrompt }));
}
