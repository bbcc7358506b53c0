"""Where the browser comes from and how it is started.

Looked for in this order: `PAGURID_CHROMIUM`, the PATH, Playwright's own. Under `CI=true` a missing
browser is a failure; elsewhere the tests that need one are skipped.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def find_chromium(playwright: Playwright) -> str | None:
    """The path of a Chromium that is there, or None."""
    wanted = os.environ.get("PAGURID_CHROMIUM")
    if wanted:
        if not Path(wanted).exists():
            pytest.fail(f"PAGURID_CHROMIUM names {wanted}, which does not exist")
        return wanted
    on_path = next(filter(None, map(shutil.which, NAMES)), None)
    if on_path:
        return on_path
    own = playwright.chromium.executable_path
    return own if Path(own).exists() else None


def launch(playwright: Playwright) -> Browser:
    """A headless Chromium; without one the test fails in CI and is skipped elsewhere."""
    path = find_chromium(playwright)
    if path is None:
        reason = (
            "no Chromium: set PAGURID_CHROMIUM, put one on the PATH, or run `playwright install chromium`"
        )
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return playwright.chromium.launch(executable_path=path, args=FLAGS)
