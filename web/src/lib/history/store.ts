/**
 * What the page asks of a place that keeps chats, and the errors such a place may have.
 *
 * Must not know: which place it is.
 */
import type { Chat, ChatSummary } from "./schema";

export interface HistoryStore {
  /** Why chats are lost when the page closes; null if they are kept. */
  readonly temporaryBecause: string | null;
  /** Newest first. */
  list(): Promise<ChatSummary[]>;
  load(id: string): Promise<Chat | null>;
  save(chat: Chat): Promise<void>;
  delete(id: string): Promise<void>;
  /** Ids of the chats whose title or messages hold the words. */
  search(words: string): Promise<Set<string>>;
}

/** The browser gives this page no more room. What is on the screen is not lost, but not kept either. */
export class HistoryFull extends Error {
  override name = "HistoryFull";
}

export function matches(chat: Chat, words: string): boolean {
  const needle = words.trim().toLowerCase();
  return (
    chat.title.toLowerCase().includes(needle) ||
    chat.messages.some((message) => message.text.toLowerCase().includes(needle))
  );
}

export function newestFirst(a: ChatSummary, b: ChatSummary): number {
  return b.updatedAtMs - a.updatedAtMs || a.id.localeCompare(b.id);
}
