/**
 * The tree of a chat's messages: the branch that is shown, its siblings, and how to move between them.
 *
 * Invariant: parents stand before their children in `messages`, so every walk ends.
 * Must not know: storage, the connection, the user interface.
 */
import type { Chat, Message } from "../history/schema";

type Tree = Pick<Chat, "messages" | "leafId">;

/** The shown branch, oldest first. */
export function branch({ messages, leafId }: Tree): Message[] {
  const byId = new Map(messages.map((message) => [message.id, message]));
  const path: Message[] = [];
  for (let id = leafId; id !== null; ) {
    const message = byId.get(id);
    if (message === undefined) break;
    path.push(message);
    id = message.parentId;
  }
  return path.reverse();
}

/** The branch that ends just before this message: what an answer in its place is given to read. */
export function before(tree: Tree, message: Message): Message[] {
  return message.parentId === null ? [] : branch({ messages: tree.messages, leafId: message.parentId });
}

/** The versions of a message: those with the same parent and role, oldest first. */
export function siblings({ messages }: Tree, message: Message): Message[] {
  return messages.filter(({ parentId, role }) => parentId === message.parentId && role === message.role);
}

/** The newest message below this one: where the branch through it ends. */
export function newestLeaf({ messages }: Tree, id: string): string {
  let leaf = id;
  for (;;) {
    const child = messages.findLast(({ parentId }) => parentId === leaf);
    if (child === undefined) return leaf;
    leaf = child.id;
  }
}

const TITLE_CHARS = 60;

/** A chat's name until a person gives it one: the start of its first question. */
export function titleFrom(text: string): string {
  const line =
    text
      .split("\n")
      .map((l) => l.trim())
      .find((l) => l !== "") ?? "";
  const chars = [...line.replaceAll(/\s+/g, " ")];
  if (chars.length === 0) return "New chat";
  if (chars.length <= TITLE_CHARS) return chars.join("");
  const cut = chars.slice(0, TITLE_CHARS).join("");
  const atWord = cut.lastIndexOf(" ");
  return `${atWord > TITLE_CHARS / 2 ? cut.slice(0, atWord) : cut}…`;
}
