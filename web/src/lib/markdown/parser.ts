/**
 * Markdown text → nodes, by markdown-it with raw HTML off.
 *
 * Owns: the link policy (http, https, mailto; nothing else, no relative links) and what of markdown is drawn.
 * Images become links: the page loads nothing from elsewhere.
 * Must not know: streaming, the page.
 */
import MarkdownIt from "markdown-it";
import type { Align, Block, Inline } from "./nodes";

type Token = ReturnType<InstanceType<typeof MarkdownIt>["parse"]>[number];

/** Link targets by label, as markdown-it keeps them. */
export type References = Record<string, { href: string; title: string }>;

const ALLOWED_LINK = /^(?:https?:\/\/|mailto:)/i;

const markdown = new MarkdownIt({ html: false, linkify: true });
markdown.linkify.set({ fuzzyLink: false, fuzzyEmail: false, fuzzyIP: false });
markdown.validateLink = (url) => ALLOWED_LINK.test(url.trim());

/** Reads a flat run of tokens, opening ones paired with closing ones, as a tree. */
class TokenReader {
  readonly #tokens: Token[];
  #at = 0;
  #isInLink = false;

  constructor(tokens: Token[]) {
    this.#tokens = tokens;
  }

  /** The next token, unless it closes what is being read. */
  next(): Token | null {
    const token = this.#tokens[this.#at];
    if (token === undefined) return null;
    this.#at += 1;
    return token.nesting === -1 ? null : token;
  }

  blocks(): Block[] {
    const blocks: Block[] = [];
    for (let token = this.next(); token !== null; token = this.next()) {
      const block = this.#block(token);
      if (block !== null) blocks.push(block);
    }
    return blocks;
  }

  #block(token: Token): Block | null {
    switch (token.type) {
      case "paragraph_open":
        return { type: token.hidden ? "line" : "paragraph", children: this.#inlineContent() };
      case "heading_open":
        return { type: "heading", level: Number(token.tag.slice(1)), children: this.#inlineContent() };
      case "fence":
      case "code_block":
        return {
          type: "code",
          language: token.info.trim().split(/\s+/)[0]?.toLowerCase() ?? "",
          text: token.content,
        };
      case "blockquote_open":
        return { type: "quote", children: this.blocks() };
      case "bullet_list_open":
        return { type: "list", start: null, items: this.#items() };
      case "ordered_list_open":
        return { type: "list", start: Number(token.attrGet("start") ?? 1), items: this.#items() };
      case "table_open":
        return this.#table();
      case "hr":
        return { type: "rule" };
      default:
        // Nothing else comes from this parser; if a new kind does, its text is not lost.
        return token.content === ""
          ? null
          : { type: "paragraph", children: [{ type: "text", text: token.content }] };
    }
  }

  #items(): Block[][] {
    const items: Block[][] = [];
    while (this.next() !== null) items.push(this.blocks());
    return items;
  }

  #table(): Block {
    const align: Align[] = [];
    const head: Inline[][] = [];
    const rows: Inline[][][] = [];
    for (let section = this.next(); section !== null; section = this.next()) {
      for (let row = this.next(); row !== null; row = this.next()) {
        const cells: Inline[][] = [];
        for (let cell = this.next(); cell !== null; cell = this.next()) {
          if (section.type === "thead_open") align.push(alignOf(cell));
          cells.push(this.#inlineContent());
        }
        if (section.type === "thead_open") head.push(...cells);
        else rows.push(cells);
      }
    }
    return { type: "table", align, head, rows };
  }

  /** What an inline token holds, and the closing token after it. */
  #inlineContent(): Inline[] {
    const content: Inline[] = [];
    for (let token = this.next(); token !== null; token = this.next()) {
      content.push(...new TokenReader(token.children ?? []).inlines());
    }
    return content;
  }

  inlines(): Inline[] {
    const inlines: Inline[] = [];
    for (let token = this.next(); token !== null; token = this.next()) {
      const inline = this.#inline(token);
      const last = inlines.at(-1);
      if (inline.type === "text" && last?.type === "text") last.text += inline.text;
      else if (inline.type !== "text" || inline.text !== "") inlines.push(inline);
    }
    return inlines;
  }

  #link(token: Token): Inline {
    this.#isInLink = true;
    const children = this.inlines();
    this.#isInLink = false;
    return link(attribute(token, "href"), attribute(token, "title"), children);
  }

  #inline(token: Token): Inline {
    switch (token.type) {
      case "code_inline":
        return { type: "code", text: token.content };
      case "softbreak":
        return { type: "text", text: "\n" };
      case "hardbreak":
        return { type: "break" };
      case "em_open":
      case "strong_open":
        return { type: token.type === "em_open" ? "em" : "strong", children: this.inlines() };
      case "s_open":
        return { type: "del", children: this.inlines() };
      case "link_open":
        return this.#link(token);
      case "image": {
        // Shown by its description; a link to it, unless it stands in a link already.
        const href = attribute(token, "src");
        const label: Inline = { type: "text", text: token.content || href || "" };
        return this.#isInLink ? label : link(href, attribute(token, "title"), [label]);
      }
      default:
        return { type: "text", text: token.content };
    }
  }
}

function attribute(token: Token, name: string): string | null {
  const value = token.attrGet(name);
  return value === null ? null : String(value);
}

/** A link whose address is checked once more where it becomes data: the policy must not rest on one caller. */
function link(href: string | null, title: string | null, children: Inline[]): Inline {
  if (href === null || !ALLOWED_LINK.test(href)) return { type: "em", children };
  return { type: "link", href, title, children };
}

function alignOf(cell: Token): Align {
  const style = String(cell.attrGet("style") ?? "");
  return (["left", "center", "right"] as const).find((side) => style.endsWith(side)) ?? null;
}

/** All blocks of a text. `references` are those defined before it; the ones it defines are added to them. */
export function parseBlocks(text: string, references: References): Block[] {
  return new TokenReader(markdown.parse(text, { references })).blocks();
}

/** The first line of the last top-level block: no later line can change a block that ends before it. */
export function lastBlockLine(text: string): number {
  const tokens: Token[] = [];
  markdown.block.parse(text, markdown, {}, tokens);
  return tokens.findLast(({ level, nesting, map }) => level === 0 && nesting !== -1 && map)?.map?.[0] ?? 0;
}
