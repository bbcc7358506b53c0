/**
 * Questions and answers in a chat: sending, stopping, trying again, editing.
 *
 * Owns: the live state of every answer that is being written, in whatever chat.
 * Invariants: an answer is `running` exactly while its generation lives here; text that came is never dropped;
 * one answer at a time per chat.
 * Must not know: sockets, storage, components.
 */
import { flushSync } from "svelte";
import { SvelteMap } from "svelte/reactivity";
import type { Server } from "../app/server.svelte";
import type { AnswerMessage, Chat, Message, UserMessage } from "../history/schema";
import type { Generation, Phase, Progress } from "../protocol/generation";
import type { WireMessage } from "../protocol/messages";
import { before, newestLeaf, titleFrom } from "./branches";
import type { Chats } from "./chats.svelte";
import { newId } from "./ids";
import { Pacer } from "./pacer";
import { toWire } from "./sampling";

/** What is known of an answer only while it is being written. */
export interface LiveAnswer {
  phase: Phase;
  progress: Progress;
  completionTokens: number;
  isStopping: boolean;
}

interface Run {
  chat: Chat;
  generation: Generation;
  pacer: Pacer;
  isStopping: boolean;
}

export class Answers {
  /** By the answer's message id. */
  readonly live = new SvelteMap<string, LiveAnswer>();
  /** The last thing worth telling someone who does not see the page. */
  announcement = $state("");
  readonly #server: Server;
  readonly #chats: Chats;
  readonly #runs = new Map<string, Run>();

  constructor(server: Server, chats: Chats) {
    this.#server = server;
    this.#chats = chats;
  }

  /** The answer being written in this chat, wherever in its tree. */
  runningIn(chat: Chat): AnswerMessage | null {
    for (const message of chat.messages) {
      if (message.role === "assistant" && this.live.has(message.id)) return message;
    }
    return null;
  }

  isWritingIn(chatId: string): boolean {
    // `live` is what changes reactively; a run stands beside each of its entries.
    for (const answerId of this.live.keys()) {
      if (this.#runs.get(answerId)?.chat.id === chatId) return true;
    }
    return false;
  }

  ask(chat: Chat, text: string): void {
    if (text.trim() === "" || this.runningIn(chat)) return;
    this.#askAfter(chat, chat.leafId, text);
  }

  /** The edited question becomes a sibling: the old one and its answers stay reachable. */
  editAndAsk(chat: Chat, question: UserMessage, text: string): void {
    if (text.trim() === "" || this.runningIn(chat)) return;
    this.#askAfter(chat, question.parentId, text);
  }

  /** Another answer beside this one, which stays unless it is empty and nothing follows it. */
  regenerate(chat: Chat, answer: AnswerMessage): void {
    if (this.runningIn(chat)) return;
    const isFollowed = chat.messages.some(({ parentId }) => parentId === answer.id);
    if (answer.text === "" && answer.reasoning === "" && !isFollowed)
      chat.messages = chat.messages.filter(({ id }) => id !== answer.id);
    this.#answer(chat, answer.parentId);
  }

  stop(answer: AnswerMessage): void {
    const run = this.#runs.get(answer.id);
    const live = this.live.get(answer.id);
    if (run === undefined || live === undefined) return;
    run.isStopping = true;
    this.live.set(answer.id, { ...live, isStopping: true });
    this.#server.connection.cancel(run.generation);
  }

  /** Stops what is being written in a chat, shown or not. */
  stopIn(chatId: string): void {
    for (const [answerId, { chat }] of this.#runs) {
      const answer = chat.messages.find(({ id }) => id === answerId);
      if (chat.id === chatId && answer?.role === "assistant") this.stop(answer);
    }
  }

  show(chat: Chat, version: Message): void {
    chat.leafId = newestLeaf(chat, version.id);
    this.#chats.keepSoon(chat);
  }

  #askAfter(chat: Chat, parentId: string | null, text: string): void {
    const question: UserMessage = {
      role: "user",
      id: newId(),
      parentId,
      createdAtMs: Date.now(),
      text: text.trim(),
    };
    if (!chat.titleIsCustom && parentId === null) chat.title = titleFrom(text);
    chat.messages.push(question);
    this.#answer(chat, question.id);
  }

  #answer(chat: Chat, parentId: string | null): void {
    const id = newId();
    chat.messages.push({
      role: "assistant",
      id,
      parentId,
      createdAtMs: Date.now(),
      text: "",
      reasoning: "",
      state: "running",
      model: this.#server.modelNamed(chat.model)?.id ?? chat.model,
      finishReason: null,
      usage: null,
      timing: null,
      cost: null,
      costPer1kTokens: null,
      failure: null,
    });
    chat.leafId = id;
    // The live object inside the chat, not the plain one pushed into it.
    const answer = chat.messages.at(-1) as AnswerMessage;
    this.#run(chat, answer);
    this.#chats.written(chat);
  }

  #run(chat: Chat, answer: AnswerMessage): void {
    this.live.set(answer.id, { phase: "waiting", progress: {}, completionTokens: 0, isStopping: false });
    this.#chats.hold(chat);
    this.announcement = "Writing an answer.";
    const pacer = new Pacer(() => {
      const run = this.#runs.get(answer.id);
      if (run !== undefined) flushSync(() => this.#draw(run, answer));
    });
    const generation = this.#server.connection.generate(
      {
        messages: this.#conversation(chat, answer),
        ...(answer.model === null ? {} : { model: answer.model }),
        sampling: toWire(chat.sampling),
      },
      (changed) => {
        if (changed.ended) this.#end(answer);
        else pacer.request();
      },
    );
    this.#runs.set(answer.id, { chat, generation, pacer, isStopping: false });
    if (generation.ended) this.#end(answer);
    else pacer.request();
  }

  #conversation(chat: Chat, answer: AnswerMessage): WireMessage[] {
    const said: WireMessage[] = [];
    for (const { role, text } of before(chat, answer)) {
      if (text === "") continue;
      const last = said.at(-1);
      // Two questions in a row, the first without an answer, are one: many chat templates ask for turns.
      if (last?.role === role) last.content += `\n\n${text}`;
      else said.push({ role, content: text });
    }
    return chat.systemPrompt.trim() === ""
      ? said
      : [{ role: "system", content: chat.systemPrompt.trim() }, ...said];
  }

  #draw({ chat, generation, isStopping }: Run, answer: AnswerMessage): void {
    const { phase, progress, completionTokens } = generation;
    this.live.set(answer.id, { phase, progress, completionTokens, isStopping });
    if (answer.text !== generation.answer || answer.reasoning !== generation.reasoning) {
      answer.text = generation.answer;
      answer.reasoning = generation.reasoning;
      this.#chats.keepSoon(chat);
    }
  }

  #end(answer: AnswerMessage): void {
    const run = this.#runs.get(answer.id);
    // A generation refused on the spot ends before its run is known; `#run` looks again.
    if (run === undefined) return;
    const { chat, generation, pacer, isStopping } = run;
    pacer.cancel();
    this.#runs.delete(answer.id);
    answer.text = generation.answer;
    answer.reasoning = generation.reasoning;
    if (generation.done) {
      const { finish_reason, usage, timing, cost, cost_per_1k_tokens } = generation.done;
      answer.state = finish_reason === "cancelled" ? "stopped" : "complete";
      answer.finishReason = finish_reason;
      answer.usage = usage;
      answer.timing = timing;
      answer.cost = cost ?? null;
      answer.costPer1kTokens = cost_per_1k_tokens ?? null;
      this.announcement = answer.state === "stopped" ? "Answer stopped." : "Answer finished.";
    } else if (generation.failure) {
      answer.state = "failed";
      answer.failure = { code: generation.failure.code, message: generation.failure.message };
      this.announcement = `The answer failed: ${generation.failure.message}`;
    } else {
      answer.state = isStopping ? "stopped" : "interrupted";
      this.announcement = isStopping ? "Answer stopped." : "The connection was lost; the answer was cut off.";
    }
    this.live.delete(answer.id);
    this.#chats.release(chat);
    void this.#chats.keep(chat);
  }
}
