/**
 * How the chat page is built and tested. It lands inside the Python package, which serves it.
 * Relative addresses (`base`) let it live under any path; nothing is inlined, so that the server's
 * content security policy can forbid inline scripts, inline styles and data: addresses.
 */
import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vitest/config";
import manifest from "./package.json" with { type: "json" };

export default defineConfig(({ mode }) => ({
  base: "./",
  plugins: [svelte()],
  define: { __PAGE_VERSION__: JSON.stringify(manifest.version) },
  build: {
    outDir: "../python/pagurid/server/static",
    emptyOutDir: true,
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    license: { fileName: "licenses.md" },
    target: ["chrome123", "firefox121", "safari17.5"],
  },
  server: {
    proxy: { "/v1": { target: "http://127.0.0.1:8000", ws: true } },
    fs: { allow: [".", "../tests/vectors"] },
  },
  resolve: mode === "test" ? { conditions: ["browser"] } : {},
  test: {
    environment: "jsdom",
    include: ["tests/**/*.test.ts"],
    setupFiles: ["tests/setup.ts"],
    restoreMocks: true,
  },
}));
