/**
 * The address names the open chat (`#chat=…`), so that reload, back and a second tab find it.
 *
 * Invariant: an address that names no chat of this browser becomes that of a new one.
 */
import type { Chat } from "../history/schema";

interface Opener {
  startNew(): void;
  open(id: string): Promise<boolean>;
}

export function addressOf(chat: Pick<Chat, "id" | "messages">): string {
  return chat.messages.length > 0 ? `#chat=${chat.id}` : "#new";
}

/** Opens the chat the address names, or a new one. */
export async function openAddressed(chats: Opener): Promise<void> {
  const id = /^#chat=(.+)$/.exec(location.hash)?.[1];
  if (id === undefined || !(await chats.open(id))) chats.startNew();
}
