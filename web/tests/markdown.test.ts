import { cleanup, render } from "@testing-library/svelte";
import { tick } from "svelte";
import { afterEach, describe, expect, it } from "vitest";
import Markdown from "../src/lib/markdown/Markdown.svelte";

afterEach(cleanup);

const ELEMENTS =
  /^(DIV|P|SPAN|CODE|BR|EM|STRONG|DEL|A|H[3-6]|FIGURE|FIGCAPTION|PRE|BUTTON|svg|path|BLOCKQUOTE|UL|OL|LI|TABLE|THEAD|TBODY|TR|TH|TD|HR)$/;

/** Everything the component may ever make of a text: D35 allows nothing else. */
function expectHarmless(root: Element): void {
  for (const element of root.querySelectorAll("*")) {
    expect(element.tagName).toMatch(ELEMENTS);
    for (const { name, value } of element.attributes) {
      expect(name).not.toMatch(/^(on|src|style|formaction|xlink|srcdoc)/);
      if (name === "href") expect(value).toMatch(/^(https?:\/\/|mailto:)/);
    }
    if (element.tagName === "A") {
      expect(element.getAttribute("rel")).toBe("noopener noreferrer");
      expect(element.getAttribute("target")).toBe("_blank");
    }
    // Icons are the page's own; nothing of the text is inside one.
    if (element.tagName === "svg") expect(element.closest("button")).not.toBeNull();
  }
}

const HOSTILE: Record<string, { text: string; shown: string }> = {
  "img with onerror": {
    text: 'a <img src=x onerror="window.pwned=1"> b',
    shown: 'a <img src=x onerror="window.pwned=1"> b',
  },
  "svg onload": { text: "<svg onload=window.pwned=1><path/></svg>", shown: "<svg onload=window.pwned=1>" },
  script: { text: "<script>window.pwned=1</script>\n\nafter", shown: "<script>window.pwned=1</script>" },
  "javascript: link": { text: "[go](javascript:window.pwned=1)", shown: "[go](javascript:window.pwned=1)" },
  "javascript: link in disguise": {
    text: "[go](JaVa&#115;cript:window.pwned=1) [x](<java\tscript:alert(1)>)",
    shown: "[go](JaVascript:window.pwned=1)",
  },
  "data: link": {
    text: "[go](data:text/html,<script>window.pwned=1</script>)",
    shown: "[go](data:text/html,<script>window.pwned=1</script>)",
  },
  "data: image": {
    text: "![p](data:image/svg+xml;base64,AAAA)",
    shown: "![p](data:image/svg+xml;base64,AAAA)",
  },
  "vbscript autolink": { text: "<vbscript:msgbox(1)>", shown: "<vbscript:msgbox(1)>" },
  "relative link": { text: "[home](/v1/stats) [hash](#chat=1)", shown: "[home](/v1/stats) [hash](#chat=1)" },
  "html in a fence without language": {
    text: "```\n<img src=x onerror=window.pwned=1>\n```\n",
    shown: "<img src=x onerror=window.pwned=1>",
  },
  "html in a coloured fence": {
    text: "```html\n<script>window.pwned=1</script>\n```\n",
    shown: "<script>window.pwned=1</script>",
  },
  "fence language with markup": { text: '```"><script>x</script>\ncode\n```\n', shown: "code" },
  "html in a table, list and heading": {
    text: "| <b>x</b> |\n|---|\n| <img onerror=y> |\n\n- <iframe src=z>\n\n# <style>*{}</style>\n",
    shown: "<img onerror=y>",
  },
  "link title with quotes": {
    text: '[a](https://example.org "x\\" onmouseover=\\"window.pwned=1")',
    shown: "a",
  },
  "reference to javascript": { text: "[a]\n\n[a]: javascript:window.pwned=1\n", shown: "[a]" },
  entities: { text: "&lt;script&gt;x&lt;/script&gt;", shown: "<script>x</script>" },
};

describe("D35: text of a model is never HTML", () => {
  it.each(Object.entries(HOSTILE))("%s, at every prefix", async (_name, { text, shown }) => {
    const { container, rerender } = render(Markdown, { text: "", isGrowing: true });
    for (let end = 1; end <= text.length; end += 1) {
      await rerender({ text: text.slice(0, end), isGrowing: true });
      expectHarmless(container);
    }
    await rerender({ text, isGrowing: false });
    expectHarmless(container);
    expect(container.textContent).toContain(shown);
    expect(window).not.toHaveProperty("pwned");
  });
});

describe("markdown", () => {
  const html = async (text: string) => {
    const { container } = render(Markdown, { text });
    await tick();
    for (const node of container.querySelectorAll("button")) node.remove();
    return container.querySelector(".prose") as HTMLElement;
  };

  it("links http, https and mailto", async () => {
    const prose = await html("[a](http://x.org) <https://y.org> [m](mailto:a@b.org) https://bare.org/p?q=1.");
    expect([...prose.querySelectorAll("a")].map((a) => a.getAttribute("href"))).toEqual([
      "http://x.org",
      "https://y.org",
      "mailto:a@b.org",
      "https://bare.org/p?q=1",
    ]);
  });

  it("shows an image as a link, so that nothing is loaded from elsewhere", async () => {
    const prose = await html(
      "![a shell](https://x.org/s.png) [![in link](https://x.org/t.png)](https://x.org)",
    );
    expect(prose.querySelector("img")).toBeNull();
    expect([...prose.querySelectorAll("a")].map((a) => [a.textContent, a.getAttribute("href")])).toEqual([
      ["a shell", "https://x.org/s.png"],
      ["in link", "https://x.org"],
    ]);
  });

  it("puts no space where the text has none", async () => {
    const prose = await html("un**frigging**believable, *a*`b`[c](https://d.org)!\nnext line");
    expect(prose.querySelector("p")?.textContent).toBe("unfriggingbelievable, abc!\nnext line");
  });

  it("keeps every character of a code block, coloured or not", async () => {
    const code = 'def f(x):\n\n    """<b>&amp;</b>"""\n\treturn {x: "y"}  \n';
    const prose = await html(`\`\`\`python\n${code}\`\`\`\n`);
    await import("../src/lib/markdown/grammars");
    await tick();
    expect(prose.querySelector("pre")?.textContent).toBe(code.replace(/\n$/, ""));
  });

  it("draws tables, lists and headings as such", async () => {
    const prose = await html("# T\n\n3. three\n4. four\n\n- [ ] x\n\n| a | b |\n|:-:|--:|\n| 1 | 2 |\n");
    expect(prose.querySelector("h3.heading-1")?.textContent).toBe("T");
    expect(prose.querySelector("ol")?.getAttribute("start")).toBe("3");
    expect(prose.querySelectorAll("li")).toHaveLength(3);
    expect(prose.querySelector("td.align-right")?.textContent).toBe("2");
  });

  it("does not redraw finished blocks while the text grows", async () => {
    const { container, rerender } = render(Markdown, { text: "One.\n\nTwo.\n\nThr", isGrowing: true });
    const [one, two] = container.querySelectorAll("p");
    await rerender({ text: "One.\n\nTwo.\n\nThree.\n\n```js\nlet", isGrowing: true });
    await rerender({ text: "One.\n\nTwo.\n\nThree.\n\n```js\nlet x\n```", isGrowing: false });
    expect(container.querySelectorAll("p")[0]).toBe(one);
    expect(container.querySelectorAll("p")[1]).toBe(two);
  });
});
