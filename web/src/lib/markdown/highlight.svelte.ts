/**
 * Code → coloured pieces, by highlight.js grammars that are fetched when the first code block appears.
 *
 * Owns: which languages there are and how much code is worth colouring.
 * Invariant: the text of the pieces joined is the code, whatever happened; without a grammar it is one plain piece.
 */
import type { createLowlight } from "lowlight";

export interface CodePiece {
  /** Class names of highlight.js, or "" for plain text. */
  className: string;
  text: string;
}

/** Colouring a block again at every delta costs its whole length: past this, wait until it stands still. */
const MAX_GROWING_CHARS = 12_000;
const MAX_CHARS = 150_000;

type Highlighter = ReturnType<typeof createLowlight>;
type Tree = ReturnType<Highlighter["highlight"]>;

let highlighter = $state.raw<Highlighter | null>(null);
let isRequested = false;

function request(): void {
  if (isRequested) return;
  isRequested = true;
  import("./grammars")
    .then((module) => {
      highlighter = module.highlighter;
    })
    .catch(() => {
      // Without colours the code is still whole; the next block tries again.
      isRequested = false;
    });
}

function flatten(nodes: Tree["children"], className: string, into: CodePiece[]): CodePiece[] {
  for (const node of nodes) {
    if (node.type === "text") into.push({ className, text: node.value });
    else if (node.type === "element") {
      const own = node.properties.className;
      const names = Array.isArray(own) ? own.join(" ") : "";
      flatten(node.children, className === "" ? names : `${className} ${names}`, into);
    }
  }
  return into;
}

export function highlight(code: string, language: string, isGrowing: boolean): CodePiece[] {
  const plain = [{ className: "", text: code }];
  if (language === "" || code.length > (isGrowing ? MAX_GROWING_CHARS : MAX_CHARS)) return plain;
  request();
  if (highlighter === null || !highlighter.registered(language)) return plain;
  return flatten(highlighter.highlight(language, code).children, "", []);
}
