/**
 * Chats kept in IndexedDB: one record per chat, and a small summary beside it so that the list opens fast.
 *
 * Invariants: a chat and its summary change in one transaction; a record that cannot be read is skipped, never
 * deleted; a full disk is reported as `HistoryFull` and leaves the last good record in place.
 * Must not know: the user interface.
 */
import { type DBSchema, type IDBPDatabase, openDB } from "idb";
import { MemoryStore } from "./memory_store";
import { type Chat, type ChatSummary, readChat, type SamplingSettings, summaryOf } from "./schema";
import { HistoryFull, type HistoryStore, matches, newestFirst } from "./store";

const DATABASE = "pagurid";
/** Of the database's stores; what is inside a record has its own version. */
const DATABASE_VERSION = 1;

interface Tables extends DBSchema {
  chats: { key: string; value: Chat };
  summaries: { key: string; value: ChatSummary };
}

class BrowserStore implements HistoryStore {
  readonly temporaryBecause = null;
  readonly #database: IDBPDatabase<Tables>;
  readonly #defaults: SamplingSettings;

  constructor(database: IDBPDatabase<Tables>, defaults: SamplingSettings) {
    this.#database = database;
    this.#defaults = defaults;
  }

  async list(): Promise<ChatSummary[]> {
    return (await this.#database.getAll("summaries")).sort(newestFirst);
  }

  async load(id: string): Promise<Chat | null> {
    return readChat(await this.#database.get("chats", id), this.#defaults);
  }

  async save(chat: Chat): Promise<void> {
    const transaction = this.#database.transaction(["chats", "summaries"], "readwrite");
    try {
      await Promise.all([
        transaction.objectStore("chats").put(chat),
        transaction.objectStore("summaries").put(summaryOf(chat)),
        transaction.done,
      ]);
    } catch (error) {
      const full = (e: unknown) => e instanceof DOMException && e.name === "QuotaExceededError";
      if (full(error) || full(transaction.error))
        throw new HistoryFull("The browser gives this page no more room to keep chats.", { cause: error });
      throw error;
    }
  }

  async delete(id: string): Promise<void> {
    const transaction = this.#database.transaction(["chats", "summaries"], "readwrite");
    await Promise.all([
      transaction.objectStore("chats").delete(id),
      transaction.objectStore("summaries").delete(id),
      transaction.done,
    ]);
  }

  async search(words: string): Promise<Set<string>> {
    const found = new Set<string>();
    let cursor = await this.#database.transaction("chats").store.openCursor();
    while (cursor !== null) {
      const chat = readChat(cursor.value, this.#defaults);
      if (chat !== null && matches(chat, words)) found.add(chat.id);
      cursor = await cursor.continue();
    }
    return found;
  }
}

/** The browser's store, or one in memory that says why. `onLost` is called if the browser takes it away later. */
export async function openHistory(defaults: SamplingSettings, onLost: () => void): Promise<HistoryStore> {
  try {
    const database = await openDB<Tables>(DATABASE, DATABASE_VERSION, {
      upgrade(db, oldVersion) {
        if (oldVersion < 1) {
          db.createObjectStore("chats", { keyPath: "id" });
          db.createObjectStore("summaries", { keyPath: "id" });
        }
      },
      // A newer page wants to upgrade: let it, rather than hold it up.
      blocking: (_current, _blocked, event) => (event.target as IDBDatabase).close(),
      terminated: onLost,
    });
    return new BrowserStore(database, defaults);
  } catch (error) {
    const reason = error instanceof DOMException && error.name === "VersionError" ? "newer" : "none";
    return new MemoryStore(
      reason === "newer"
        ? "A newer version of this page has been used here; chats are not kept until the page is reloaded."
        : "This browser gives the page no storage: chats are lost when it closes.",
    );
  }
}
