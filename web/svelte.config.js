/** Runes everywhere; CSS stays in the built stylesheet, so that the page needs no inline style. */
export default {
  compilerOptions: { runes: true, css: "external" },
};
