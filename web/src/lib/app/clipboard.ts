/**
 * Text onto the clipboard, also on plain http pages of other machines, where the clipboard API does not exist.
 */

function copyBySelection(text: string): boolean {
  const box = document.createElement("textarea");
  box.value = text;
  box.setAttribute("readonly", "");
  box.className = "visually-hidden";
  const focused = document.activeElement;
  document.body.append(box);
  box.select();
  try {
    // Old, but the only way without a secure context.
    return document.execCommand("copy");
  } catch {
    return false;
  } finally {
    box.remove();
    if (focused instanceof HTMLElement) focused.focus();
  }
}

export async function copyText(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copyBySelection(text);
  }
}
