/**
 * Draws a growing answer at most once per frame, and seldom enough that drawing takes at most a quarter of the
 * time: a very long answer must not freeze the page it is read on.
 *
 * Must not know: what is drawn.
 */

const HIDDEN_TAB_MS = 500;
const REST_PER_COST = 3;

export class Pacer {
  readonly #draw: () => void;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #frame: number | undefined;
  #notBefore = 0;

  constructor(draw: () => void) {
    this.#draw = draw;
  }

  /** Something is new: draw it soon. */
  request(): void {
    // A hidden tab gets no frames, but its text must still be kept up to date.
    if (document.hidden && this.#frame !== undefined) this.cancel();
    if (this.#timer !== undefined || this.#frame !== undefined) return;
    const waitMs = document.hidden ? HIDDEN_TAB_MS : this.#notBefore - performance.now();
    if (waitMs > 0) this.#timer = setTimeout(() => this.flush(), waitMs);
    else this.#frame = requestAnimationFrame(() => this.flush());
  }

  /** Draws now. */
  flush(): void {
    this.cancel();
    const startMs = performance.now();
    this.#draw();
    const endMs = performance.now();
    this.#notBefore = endMs + (endMs - startMs) * REST_PER_COST;
  }

  cancel(): void {
    clearTimeout(this.#timer);
    if (this.#frame !== undefined) cancelAnimationFrame(this.#frame);
    this.#timer = undefined;
    this.#frame = undefined;
  }
}
