/**
 * Full-jitter back-off: each wait is drawn evenly from zero up to a ceiling that doubles,
 * so that many pages that lost the same server do not come back at the same moment.
 *
 * Must not know: timers. The random source is given, so tests are deterministic.
 */

const FIRST_CEILING_MS = 500;
const LAST_CEILING_MS = 30_000;

export class Backoff {
  readonly #random: () => number;
  #attempt = 0;

  constructor(random: () => number = Math.random) {
    this.#random = random;
  }

  /** The wait before the next attempt; never less than what the server asked for. */
  nextDelayMs(atLeastMs = 0): number {
    const ceiling = Math.min(LAST_CEILING_MS, FIRST_CEILING_MS * 2 ** this.#attempt);
    this.#attempt += 1;
    return atLeastMs + this.#random() * ceiling;
  }

  reset(): void {
    this.#attempt = 0;
  }
}
