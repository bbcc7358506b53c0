/**
 * What a markdown text is made of, as plain data. Components draw it as elements, never as HTML text, so no
 * string that a model wrote is ever parsed as HTML.
 *
 * Must not know: the parser, the page.
 */

export type Inline =
  | { type: "text"; text: string }
  | { type: "code"; text: string }
  | { type: "break" }
  | { type: "em" | "strong" | "del"; children: Inline[] }
  /** `href` has passed the link policy. */
  | { type: "link"; href: string; title: string | null; children: Inline[] };

export type Align = "left" | "center" | "right" | null;

export interface CodeNode {
  type: "code";
  language: string;
  text: string;
}

export type Block =
  | CodeNode
  | { type: "paragraph"; children: Inline[] }
  /** A paragraph of a tight list: drawn without its own spacing. */
  | { type: "line"; children: Inline[] }
  | { type: "heading"; level: number; children: Inline[] }
  | { type: "quote"; children: Block[] }
  | { type: "list"; start: number | null; items: Block[][] }
  | { type: "rule" }
  | { type: "table"; align: Align[]; head: Inline[][]; rows: Inline[][][] };
