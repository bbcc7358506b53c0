/**
 * Chats that live as long as the page: for browsers that give it no storage.
 *
 * Invariant: what was saved is a copy, as with a real store.
 */
import { type Chat, type ChatSummary, summaryOf } from "./schema";
import { type HistoryStore, matches, newestFirst } from "./store";

export class MemoryStore implements HistoryStore {
  readonly temporaryBecause: string;
  readonly #chats = new Map<string, Chat>();

  constructor(temporaryBecause: string) {
    this.temporaryBecause = temporaryBecause;
  }

  async list(): Promise<ChatSummary[]> {
    return [...this.#chats.values()].map(summaryOf).sort(newestFirst);
  }

  async load(id: string): Promise<Chat | null> {
    const chat = this.#chats.get(id);
    return chat === undefined ? null : structuredClone(chat);
  }

  async save(chat: Chat): Promise<void> {
    this.#chats.set(chat.id, structuredClone(chat));
  }

  async delete(id: string): Promise<void> {
    this.#chats.delete(id);
  }

  async search(words: string): Promise<Set<string>> {
    return new Set([...this.#chats.values()].filter((chat) => matches(chat, words)).map(({ id }) => id));
  }
}
