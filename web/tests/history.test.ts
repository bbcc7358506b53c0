import { deleteDB, openDB } from "idb";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { DEFAULT_SAMPLING } from "../src/lib/chat/sampling";
import { openHistory } from "../src/lib/history/browser_store";
import { type Chat, readChat, SCHEMA_VERSION } from "../src/lib/history/schema";
import { HistoryFull } from "../src/lib/history/store";

const defaults = { ...DEFAULT_SAMPLING, stop: [] };

function chat(id: string, updatedAtMs: number, more: Partial<Chat> = {}): Chat {
  return {
    schema: SCHEMA_VERSION,
    id,
    title: `Title of ${id}`,
    titleIsCustom: false,
    createdAtMs: 1,
    updatedAtMs,
    model: null,
    systemPrompt: "",
    sampling: defaults,
    messages: [{ role: "user", id: "u", parentId: null, createdAtMs: 1, text: `Text of ${id}` }],
    leafId: "u",
    ...more,
  };
}

describe("the history in the browser", () => {
  const open = () => openHistory(defaults, () => undefined);

  beforeEach(async () => {
    await deleteDB("pagurid");
  });
  afterEach(() => {
    vi.restoreAllMocks();
  });

  it("gives back what was kept, after the page was closed", async () => {
    const kept = chat("a", 5, {
      systemPrompt: "Be brief.",
      sampling: { ...defaults, seed: 7, max_tokens: 9 },
    });
    await (await open()).save(kept);
    const store = await open();
    expect(store.temporaryBecause).toBeNull();
    expect(await store.load("a")).toEqual(kept);
    expect(await store.load("nothing")).toBeNull();
  });

  it("lists the newest first and forgets what was deleted", async () => {
    const store = await open();
    await Promise.all([chat("old", 1), chat("new", 3), chat("gone", 2)].map((c) => store.save(c)));
    await store.delete("gone");
    expect((await store.list()).map(({ id }) => id)).toEqual(["new", "old"]);
    expect(await store.load("gone")).toBeNull();
  });

  it("finds words in titles and messages, whatever their case", async () => {
    const store = await open();
    await store.save(chat("a", 1, { title: "Shells" }));
    await store.save(chat("b", 2));
    expect(await store.search("shell")).toEqual(new Set(["a"]));
    expect(await store.search("TEXT OF B")).toEqual(new Set(["b"]));
    expect(await store.search("neither")).toEqual(new Set());
  });

  it("says that the browser is full and keeps the last good record", async () => {
    const store = await open();
    await store.save(chat("a", 1));
    vi.spyOn(IDBObjectStore.prototype, "put").mockImplementation(() => {
      throw new DOMException("full", "QuotaExceededError");
    });
    await expect(store.save(chat("a", 2, { title: "Newer" }))).rejects.toThrow(HistoryFull);
    vi.restoreAllMocks();
    expect((await store.load("a"))?.title).toBe("Title of a");
  });

  it("does without storage, and says so", async () => {
    vi.spyOn(indexedDB, "open").mockImplementation(() => {
      throw new DOMException("no", "SecurityError");
    });
    const store = await open();
    expect(store.temporaryBecause).toMatch(/no storage/);
    const kept = chat("a", 1);
    await store.save(kept);
    kept.title = "changed after";
    expect((await store.load("a"))?.title).toBe("Title of a");
    expect((await store.list()).map(({ id }) => id)).toEqual(["a"]);
  });

  it("leaves the database of a newer page alone", async () => {
    (await openDB("pagurid", 99)).close();
    expect((await open()).temporaryBecause).toMatch(/newer version/);
  });

  it("skips records it cannot read and deletes none", async () => {
    const store = await open();
    const raw = await openDB("pagurid", 1);
    await raw.put("chats", { id: "future", schema: SCHEMA_VERSION + 1, shape: "unknown" });
    expect(await store.load("future")).toBeNull();
    expect(await store.search("unknown")).toEqual(new Set());
    expect(await raw.get("chats", "future")).toHaveProperty("shape");
    raw.close();
  });
});

describe("reading a record", () => {
  it("takes an answer whose page was closed for interrupted", () => {
    const record = {
      ...chat("a", 1),
      messages: [{ role: "assistant", id: "m", state: "running", text: "half" }],
    };
    expect(readChat(record, defaults)?.messages).toMatchObject([{ state: "interrupted", text: "half" }]);
  });

  it("mends what is missing or broken", () => {
    const record = {
      id: "a",
      sampling: { temperature: "hot", seed: 3 },
      messages: [
        null,
        { id: "u", role: "user", text: 5 },
        { id: "u", role: "user" },
        { id: "v", role: "poet" },
      ],
      leafId: "nowhere",
    };
    const read = readChat(record, defaults);
    expect(read).toMatchObject({
      title: "Untitled",
      sampling: { ...defaults, seed: 3 },
      messages: [{ id: "u", role: "user", text: "" }],
      leafId: "u",
    });
  });

  it("cannot be sent in circles", () => {
    const turn = (id: string, parentId: string) => ({ id, parentId, role: "user", text: id });
    const read = readChat({ id: "a", messages: [turn("x", "y"), turn("y", "x")], leafId: "y" }, defaults);
    expect(read?.messages.map(({ parentId }) => parentId)).toEqual([null, "x"]);
  });

  it.each([null, 7, "chat", {}, { id: 7 }])("refuses %j", (value) => {
    expect(readChat(value, defaults)).toBeNull();
  });
});
