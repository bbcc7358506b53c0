/**
 * What a key means in a text box: send, cancel, or just a key.
 *
 * The Enter that confirms a candidate of an input method must never send: browsers mark it with `isComposing`,
 * Safari instead ends the composition first and then sends keydown with keyCode 229.
 */

export type KeyMeaning = "submit" | "cancel" | null;

const INPUT_METHOD_KEY_CODE = 229;

type KeyEvent = Pick<
  KeyboardEvent,
  "key" | "isComposing" | "keyCode" | "shiftKey" | "ctrlKey" | "altKey" | "metaKey"
>;

export function keyMeaning(event: KeyEvent): KeyMeaning {
  if (event.isComposing || event.keyCode === INPUT_METHOD_KEY_CODE) return null;
  if (event.key === "Escape") return "cancel";
  if (event.key === "Enter" && !event.shiftKey && !event.altKey) return "submit";
  return null;
}
