#!/usr/bin/env bash
# Finds or installs a Chromium for the browser tests: PAGURID_CHROMIUM, the PATH, Playwright's own, the system's packages.
# Exits 0 also when none can be had: the tests then skip, or fail under CI=true.
set -u
playwright_python=${1:-.venv/bin/python}

[ -n "${PAGURID_CHROMIUM:-}" ] && exit 0
for name in chromium chromium-browser google-chrome google-chrome-stable; do
  command -v "$name" >/dev/null 2>&1 && exit 0
done
found=$("$playwright_python" - <<'PY' 2>/dev/null
from pathlib import Path
from playwright.sync_api import sync_playwright
with sync_playwright() as playwright:
    print(Path(playwright.chromium.executable_path).exists())
PY
)
[ "$found" = True ] && exit 0
echo "no Chromium found: trying to install one for the browser tests" >&2
if command -v apt-get >/dev/null 2>&1 && [ "$(id -u)" = 0 ]; then
  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium >/dev/null && exit 0
fi
timeout 300 "$playwright_python" -m playwright install chromium >/dev/null 2>&1 ||
  echo "could not install Chromium; set PAGURID_CHROMIUM to a browser to run the browser tests" >&2
exit 0
