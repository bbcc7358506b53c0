/**
 * What a close code means for this client: come back by itself, ask for a key, or stop.
 *
 * Owns: the code table of PROTOCOL.md and the words a person sees for each.
 * Invariant: 4400 to 4406 never reconnect by themselves.
 */

export const CLOSE_MALFORMED = 4400;
export const CLOSE_HEARTBEAT_MISSED = 4440;

export type CloseVerdict = "reconnect" | "unauthorized" | "refused";

const RECONNECT = new Set([1001, 1005, 1006, 1011, 1012, 1013, CLOSE_HEARTBEAT_MISSED, 4441]);

const WORDS = new Map<number, string>([
  [1000, "The server ended the connection."],
  [1001, "The server is going away."],
  [1003, "The server got a kind of frame it does not take."],
  [1005, "The connection ended without a reason."],
  [1006, "The server cannot be reached."],
  [1007, "The server got text that is not UTF-8."],
  [1009, "A message was larger than the server takes. A shorter conversation helps."],
  [1011, "The server met a fault of its own."],
  [1012, "The server is restarting."],
  [1013, "The server has more connections than it can serve."],
  [CLOSE_MALFORMED, "The server and this page do not understand each other. Reload the page."],
  [4401, "The server asks for a key."],
  [4403, "The server does not allow this page or this key."],
  [4406, "The server speaks another version of the protocol. Reload the page."],
  [4408, "The connection was too slow to greet the server."],
  [4409, "The server got two greetings on one connection."],
  [4429, "Too many messages in a short time."],
  [CLOSE_HEARTBEAT_MISSED, "The server has gone silent."],
  [4441, "This page could not keep up with the answers."],
]);

export function closeVerdict(code: number): CloseVerdict {
  if (code === 4401) return "unauthorized";
  return RECONNECT.has(code) ? "reconnect" : "refused";
}

export function closeWords(code: number): string {
  return WORDS.get(code) ?? `The server closed the connection (code ${code}).`;
}
