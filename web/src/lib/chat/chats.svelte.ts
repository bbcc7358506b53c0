/**
 * The chats of this browser: the list, the one that is open, and keeping them.
 *
 * Owns: `current`, the list, which chats are held in memory because an answer is being written into them.
 * Invariants: one live object per chat; a chat enters the list with its first message; what a person deleted can
 * be brought back until the next deletion; a failed save is told once and loses nothing on the screen.
 * Must not know: the connection, how answers come.
 */
import { chatDefaults } from "../app/preferences";
import { type Chat, type ChatSummary, SCHEMA_VERSION, summaryOf } from "../history/schema";
import { HistoryFull, type HistoryStore, newestFirst } from "../history/store";
import { newId } from "./ids";

const SAVE_AFTER_MS = 300;

function emptyChat(): Chat {
  const { sampling, systemPrompt } = chatDefaults();
  const nowMs = Date.now();
  return {
    schema: SCHEMA_VERSION,
    id: newId(),
    title: "New chat",
    titleIsCustom: false,
    createdAtMs: nowMs,
    updatedAtMs: nowMs,
    model: null,
    systemPrompt,
    sampling,
    messages: [],
    leafId: null,
  };
}

export class Chats {
  current = $state<Chat>(emptyChat());
  list = $state.raw<ChatSummary[]>([]);
  /** What went wrong with keeping chats, for the person to know. */
  problem = $state<string | null>(null);
  /** The chat last deleted, while it can still be brought back. */
  deleted = $state.raw<Chat | null>(null);

  readonly #store: HistoryStore;
  /** Live chats that are not `current`, by id. */
  readonly #held = new Map<string, Chat>();
  readonly #saveTimers = new Map<string, ReturnType<typeof setTimeout>>();
  /** `problem` tells of a failed write; the next that works takes it back. */
  #hasFailed = false;
  /** Deleted here: an answer that ends late must not bring its chat back. */
  readonly #gone = new Set<string>();
  readonly #otherTabs = new BroadcastChannel("pagurid.history");

  constructor(store: HistoryStore) {
    this.#store = store;
    this.problem = store.temporaryBecause;
    this.#otherTabs.onmessage = ({ data }: MessageEvent<unknown>) => void this.#heardFromOtherTab(data);
  }

  async refresh(): Promise<void> {
    await this.#guard(async () => {
      this.list = await this.#store.list();
    });
  }

  startNew(): void {
    this.keepAll();
    if (this.current.messages.length > 0) this.current = emptyChat();
  }

  /** Shows a chat; false if there is none of this id. */
  async open(id: string): Promise<boolean> {
    if (id === this.current.id) return true;
    this.keepAll();
    const chat = this.#held.get(id) ?? (await this.#guard(() => this.#store.load(id)));
    if (!chat) return false;
    this.current = chat;
    return true;
  }

  /** Keeps a chat alive under its id while an answer grows in it, also when another is shown. */
  hold(chat: Chat): void {
    this.#held.set(chat.id, chat);
  }

  release(chat: Chat): void {
    this.#held.delete(chat.id);
  }

  isHeld(id: string): boolean {
    return this.#held.has(id);
  }

  /** Someone wrote in the chat: it moves to the top of the list and is kept at once, for a page may close any time. */
  written(chat: Chat): void {
    chat.updatedAtMs = Date.now();
    this.#listed(chat);
    void this.keep(chat);
  }

  /** Keeps the chat soon, its place in the list unchanged: for text that grows. */
  keepSoon(chat: Chat): void {
    if (this.#saveTimers.has(chat.id)) return;
    this.#saveTimers.set(
      chat.id,
      setTimeout(() => void this.keep(chat), SAVE_AFTER_MS),
    );
  }

  async keep(chat: Chat): Promise<void> {
    clearTimeout(this.#saveTimers.get(chat.id));
    this.#saveTimers.delete(chat.id);
    if (chat.messages.length === 0 || this.#gone.has(chat.id)) return;
    await this.#guard(async () => {
      await this.#store.save($state.snapshot(chat) as Chat);
      this.#otherTabs.postMessage(chat.id);
      if (this.#hasFailed) this.problem = null;
      this.#hasFailed = false;
    });
  }

  /** The page or the chat is being left: what waits to be kept is kept now. */
  keepAll(): void {
    for (const chat of new Set([this.current, ...this.#held.values()])) {
      if (this.#saveTimers.has(chat.id)) void this.keep(chat);
    }
  }

  async rename(id: string, title: string): Promise<void> {
    const name = title.trim();
    if (name === "") return;
    const chat = await this.#live(id);
    if (!chat) return;
    chat.title = name;
    chat.titleIsCustom = true;
    this.#listed(chat);
    await this.keep(chat);
  }

  async delete(id: string): Promise<void> {
    const chat = await this.#live(id);
    clearTimeout(this.#saveTimers.get(id));
    this.#saveTimers.delete(id);
    if (id === this.current.id) this.current = emptyChat();
    this.#held.delete(id);
    this.#gone.add(id);
    this.list = this.list.filter((summary) => summary.id !== id);
    await this.#guard(async () => {
      await this.#store.delete(id);
      this.#otherTabs.postMessage(id);
      this.deleted = chat ? ($state.snapshot(chat) as Chat) : null;
    });
  }

  async undelete(): Promise<void> {
    const chat = this.deleted;
    if (chat === null) return;
    this.deleted = null;
    this.#gone.delete(chat.id);
    this.#listed(chat);
    await this.keep(chat);
    await this.open(chat.id);
  }

  async search(words: string): Promise<Set<string>> {
    return (await this.#guard(() => this.#store.search(words))) ?? new Set();
  }

  async #live(id: string): Promise<Chat | null> {
    if (id === this.current.id) return this.current;
    return this.#held.get(id) ?? (await this.#guard(() => this.#store.load(id))) ?? null;
  }

  #listed(chat: Chat): void {
    const others = this.list.filter(({ id }) => id !== chat.id);
    this.list = [summaryOf(chat), ...others].sort(newestFirst);
  }

  async #heardFromOtherTab(id: unknown): Promise<void> {
    await this.refresh();
    // The other tab's version of the chat shown here is newer, unless an answer is growing in ours.
    if (typeof id !== "string" || id !== this.current.id || this.#held.has(id)) return;
    const chat = await this.#guard(() => this.#store.load(id));
    // Meanwhile a question may have been asked here.
    if (chat && chat.id === this.current.id && !this.#held.has(id)) this.current = chat;
  }

  async #guard<T>(work: () => Promise<T>): Promise<T | null> {
    try {
      return await work();
    } catch (error) {
      this.#hasFailed = true;
      this.problem =
        error instanceof HistoryFull
          ? `${error.message} Delete old chats to make room; until then new messages are lost when the page closes.`
          : `Chats could not be read or kept: ${error instanceof Error ? error.message : String(error)}`;
      return null;
    }
  }
}
