/**
 * A text box as tall as its text, up to its `max-height`. Browsers that know `field-sizing` do it by themselves;
 * for the others the height is set whenever the text changes.
 */
import type { Attachment } from "svelte/attachments";

export function autogrow(text: () => string): Attachment<HTMLTextAreaElement> {
  return (box) => {
    if (CSS.supports("field-sizing", "content")) return;
    $effect(() => {
      text();
      box.style.height = "auto";
      box.style.height = `${box.scrollHeight + box.offsetHeight - box.clientHeight}px`;
    });
  };
}
