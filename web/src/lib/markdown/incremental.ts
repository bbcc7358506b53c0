/**
 * A markdown text that grows: finished blocks are parsed once, only the tail is parsed again.
 *
 * Invariants: after `finish` the blocks are those of a one-shot parse of the whole text, wherever the pieces were
 * cut; a finished block keeps its identity, so the page draws it once and a selection in it survives.
 * Must not know: the page, timers.
 */
import type { Block } from "./nodes";
import { lastBlockLine, parseBlocks, type References } from "./parser";

const LINE_END = /\r\n?|\n/g;
/** A definition may be named by a link before it, so the last parse must see the whole text. */
const MAY_DEFINE_REFERENCE = /^ {0,3}(?:[>\-*+] *|\d+[.)] *)*\[[^\]]+\]:/m;

export interface ParserPort {
  parseBlocks: typeof parseBlocks;
  lastBlockLine: typeof lastBlockLine;
}

function lineOffset(text: string, line: number): number {
  let passed = 0;
  for (const match of text.matchAll(LINE_END)) {
    passed += 1;
    if (passed === line) return match.index + match[0].length;
  }
  return 0;
}

export class IncrementalMarkdown {
  readonly #parser: ParserPort;
  #text = "";
  #finished: Block[] = [];
  #finishedChars = 0;
  /** Up to where the text was searched for finished blocks. */
  #searchedChars = 0;
  #references: References = {};
  #isFinal = false;
  #blocks: Block[] = [];

  constructor(parser: ParserPort = { parseBlocks, lastBlockLine }) {
    this.#parser = parser;
  }

  /** The blocks of `text`, which usually begins with the text of the last call. */
  update(text: string, isFinal: boolean): Block[] {
    if (text === this.#text && isFinal === this.#isFinal) return this.#blocks;
    if (!text.startsWith(this.#text)) this.#restart();
    this.#text = text;
    this.#isFinal = isFinal;
    if (isFinal && this.#finished.length > 0 && MAY_DEFINE_REFERENCE.test(text)) this.#restart(text);
    else this.#finishBlocks();
    const tail = this.#parser.parseBlocks(text.slice(this.#finishedChars), { ...this.#references });
    this.#blocks = [...this.#finished, ...tail];
    return this.#blocks;
  }

  #restart(text = ""): void {
    this.#text = text;
    this.#finished = [];
    this.#finishedChars = 0;
    this.#searchedChars = 0;
    this.#references = {};
  }

  /** Moves blocks that nothing can change any more out of the tail. */
  #finishBlocks(): void {
    // Only whole lines count: "2" may yet become "2. a list item" of the list above it.
    const wholeLines = this.#text.lastIndexOf("\n") + 1;
    if (wholeLines <= this.#searchedChars) return;
    this.#searchedChars = wholeLines;
    const tail = this.#text.slice(this.#finishedChars, wholeLines);
    const end = lineOffset(tail, this.#parser.lastBlockLine(tail));
    if (end === 0) return;
    this.#finished = [...this.#finished, ...this.#parser.parseBlocks(tail.slice(0, end), this.#references)];
    this.#finishedChars += end;
  }
}
