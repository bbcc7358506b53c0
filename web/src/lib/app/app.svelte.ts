/**
 * The page's parts, made once and handed down through Svelte's context.
 */
import { createContext } from "svelte";
import { Answers } from "../chat/answers.svelte";
import { Chats } from "../chat/chats.svelte";
import type { HistoryStore } from "../history/store";
import type { Server } from "./server.svelte";

export class ChatApp {
  readonly server: Server;
  readonly chats: Chats;
  readonly answers: Answers;

  constructor(server: Server, store: HistoryStore) {
    this.server = server;
    this.chats = new Chats(store);
    this.answers = new Answers(server, this.chats);
  }
}

export const [getApp, setApp] = createContext<ChatApp>();
