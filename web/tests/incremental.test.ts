import { describe, expect, it } from "vitest";
import { IncrementalMarkdown } from "../src/lib/markdown/incremental";
import { lastBlockLine, parseBlocks } from "../src/lib/markdown/parser";

const DOCUMENTS = {
  prose: "First paragraph,\nstill the first.\n\nSecond with *em*, **strong** and `code`.\n\nThird.\n",
  headings: "# One\ntext\n\nSetext\n===\n\npara\n---\n\nlast",
  lists: "1. a\n\n2. b\n   - c\n   - d\n\n     more of d\n\n3. e\n\n- new list\n* other list\n\n1) paren\n",
  number_that_becomes_a_list: "1. a\n\n2\n\n1. a\n\n2. b\n",
  fences: "```py\nx = 1\n\n\ny = 2\n```\n\n~~~\n``` not a fence\n~~~\nafter\n\n```\nnever closed\n\nreally",
  indented: "    code\n\n    more code\n\ntext\n",
  quotes: "> one\nlazy\n\n> two\n>> deep\n\n> - list\n>   in quote\n",
  tables: "text\n| a | b |\n|---|:-:|\n| 1 | 2 |\n| 3 | 4 |\n\nafter\n\n| x |\n|--|\n",
  references:
    "See [later] and ![pic][img].\n\nMore.\n\n[later]: https://example.org/a\n\n[img]: https://example.org/b 'T'\n\n[later]\n",
  carriage_returns: "a\r\nb\r\n\r\n- c\r\n- d\r\n\r\nend\rstill",
  rules: "a\n\n***\n\nb\n- - -\nc\n",
  unicode: "日本語の文。\n\n- 🫠 émoji\n- 客单价\n\n**太字**。\n",
  html: "<div>\n\n<script>alert(1)</script>\n\n</div>\n\ntext <b>x</b>\n",
  blank: "\n\n\n   \n\ntext\n\n\n\n",
};

describe.each(Object.entries(DOCUMENTS))("%s, in pieces", (_name, text) => {
  const whole = parseBlocks(text, {});

  it("ends as the whole text parsed at once, from pieces of any size", () => {
    for (const size of [1, 2, 3, 5, 8, 13, 40]) {
      const markdown = new IncrementalMarkdown();
      for (let end = size; end < text.length; end += size) markdown.update(text.slice(0, end), false);
      expect(markdown.update(text, true)).toEqual(whole);
    }
  });

  it("shows each prefix as that prefix parsed at once, but for links defined later", () => {
    if (_name === "references") return;
    const markdown = new IncrementalMarkdown();
    for (let end = 1; end <= text.length; end += 1) {
      const prefix = text.slice(0, end);
      expect(markdown.update(prefix, false)).toEqual(parseBlocks(prefix, {}));
    }
  });
});

/** A small generator with a fixed seed: the same documents at every run. */
function random(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

const FRAGMENTS = [
  ..."\n\n\n\n   \t>-*+#`~|=_[]()1.2:\\!&<",
  ..."```\n,~~~\n,- ,  - ,1. ,2) ,> ,# ,    ,---\n,===\n,| a | b |\n,|---|---|\n,**,`,word ,two words\n,<b>,\\,&amp;".split(
    ",",
  ),
];

describe("any mixture of markdown", () => {
  it("shows each prefix as that prefix parsed at once", () => {
    const pick = random(20261201);
    for (let round = 0; round < 400; round += 1) {
      let text = "";
      const markdown = new IncrementalMarkdown();
      for (let piece = 0; piece < 40; piece += 1) {
        text += FRAGMENTS[pick(FRAGMENTS.length)];
        expect(markdown.update(text, false), JSON.stringify(text)).toEqual(parseBlocks(text, {}));
      }
    }
  });
});

describe("incremental markdown", () => {
  it("keeps finished blocks, so that they are drawn once", () => {
    const markdown = new IncrementalMarkdown();
    const [first] = markdown.update("One.\n\nTwo.\n", false);
    expect(markdown.update("One.\n\nTwo.\n\nThree", false)[0]).toBe(first);
    expect(markdown.update("One.\n\nTwo.\n\nThree.", true)[0]).toBe(first);
  });

  it("starts over when the text is another one", () => {
    const markdown = new IncrementalMarkdown();
    markdown.update("# Old\n\ntext\n\nmore", false);
    expect(markdown.update("New", true)).toEqual(parseBlocks("New", {}));
  });

  it("parses a long answer a few times over, not once per piece", () => {
    let parsedChars = 0;
    const markdown = new IncrementalMarkdown({
      parseBlocks: (text, references) => {
        parsedChars += text.length;
        return parseBlocks(text, references);
      },
      lastBlockLine: (text) => {
        parsedChars += text.length;
        return lastBlockLine(text);
      },
    });
    const text =
      "A paragraph of about one hundred characters, such as models write when they are asked for one.\n\n".repeat(
        300,
      );
    const pieces = Math.ceil(text.length / 8);
    for (let at = 1; at <= pieces; at += 1) markdown.update(text.slice(0, at * 8), at === pieces);
    // Quadratic work would be about pieces / 2 = 1800 times the text.
    expect(parsedChars / text.length).toBeLessThan(40);
  });
});
