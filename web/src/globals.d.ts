/** Of package.json, put in by the build. */
declare const __PAGE_VERSION__: string;
