/** What a reader is told while an answer is on its way. */

import type { LiveAnswer } from "./answers.svelte";
import { formatMs, formatTokens } from "./figures";

export interface ProgressWords {
  words: string;
  /** 0 to 1 where it is known how far things are. */
  share: number | null;
}

export function progressWords({ phase, progress, isStopping }: LiveAnswer): ProgressWords {
  const { position, eta_ms, done, total } = progress;
  if (isStopping) return { words: "Stopping", share: null };
  switch (phase) {
    case "waiting":
      return { words: "Waiting for the connection", share: null };
    case "queued": {
      const place =
        position === undefined
          ? ""
          : position === 0
            ? ", next in line"
            : `, ${formatTokens(position)} before you`;
      const eta =
        eta_ms === undefined ? "" : `, about ${formatMs(Math.ceil(eta_ms / 1000) * 1000).replace(".00", "")}`;
      return { words: `In the queue${place}${eta}`, share: null };
    }
    case "prefill":
      return done === undefined || total === undefined || total <= 0
        ? { words: "Reading the prompt", share: null }
        : {
            words: `Reading the prompt, ${formatTokens(done)} of ${formatTokens(total)} tokens`,
            share: Math.min(1, done / total),
          };
    case "preempted":
      return { words: "Set aside to make room for others; it goes on by itself", share: null };
    default:
      return { words: "Thinking", share: null };
  }
}
