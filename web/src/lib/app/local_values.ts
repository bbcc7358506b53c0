/**
 * Small values kept in the browser under the page's prefix. A browser that forbids storage, or has no room,
 * costs the memory of the value and nothing else.
 */

const PREFIX = "pagurid.";

export function readLocal(name: string, storage: () => Storage = () => localStorage): string | null {
  try {
    return storage().getItem(PREFIX + name);
  } catch {
    return null;
  }
}

export function writeLocal(
  name: string,
  value: string | null,
  storage: () => Storage = () => localStorage,
): void {
  try {
    if (value === null) storage().removeItem(PREFIX + name);
    else storage().setItem(PREFIX + name, value);
  } catch {
    // Nothing depends on it: the value lives on in memory.
  }
}
