/**
 * Keeps the newest text in view while it grows, unless the reader has gone up to read: their scrolling wins at
 * once, and coming back to the end follows again.
 *
 * Must not know: what is in the view.
 */
import type { Attachment } from "svelte/attachments";

/** This close to the end counts as at the end. */
const AT_END_PX = 48;

export class Follow {
  isFollowing = $state(true);
  #view: HTMLElement | null = null;
  #lastTop = 0;
  #lastHeight = 0;

  /** For the scrolling element; its only child is what grows. */
  readonly attach: Attachment<HTMLElement> = (view) => {
    this.#view = view;
    const onScroll = () => this.#scrolled(view);
    const onWheel = (event: WheelEvent) => {
      if (event.deltaY < 0 && view.scrollHeight > view.clientHeight) this.isFollowing = false;
    };
    const observer = new ResizeObserver(() => {
      if (this.isFollowing) this.#toEnd(view, "instant");
    });
    observer.observe(view);
    if (view.firstElementChild) observer.observe(view.firstElementChild);
    view.addEventListener("scroll", onScroll, { passive: true });
    view.addEventListener("wheel", onWheel, { passive: true });
    return () => {
      observer.disconnect();
      view.removeEventListener("scroll", onScroll);
      view.removeEventListener("wheel", onWheel);
      this.#view = null;
    };
  };

  /** To the newest text, and stay there. */
  jump(behavior: ScrollBehavior = "instant"): void {
    this.isFollowing = true;
    if (this.#view) this.#toEnd(this.#view, behavior);
  }

  /** Nothing to follow: show the beginning. */
  rest(): void {
    this.isFollowing = false;
    this.#view?.scrollTo({ top: 0, behavior: "instant" });
  }

  #toEnd(view: HTMLElement, behavior: ScrollBehavior): void {
    view.scrollTo({ top: view.scrollHeight, behavior });
  }

  #scrolled(view: HTMLElement): void {
    const { scrollTop, scrollHeight, clientHeight } = view;
    const wentUp = scrollTop < this.#lastTop - 1;
    const shrank = scrollHeight < this.#lastHeight;
    this.#lastTop = scrollTop;
    this.#lastHeight = scrollHeight;
    const fromEnd = scrollHeight - scrollTop - clientHeight;
    // At the very end it may be the view that grew under an unmoved reader, so direction says nothing there.
    if (fromEnd <= 1) this.isFollowing = true;
    else if (wentUp && !shrank) this.isFollowing = false;
    else if (!wentUp && fromEnd <= AT_END_PX) this.isFollowing = true;
  }
}
