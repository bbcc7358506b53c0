"""The PEP 517 build backend: maturin, after the chat UI has been built.

Owns: that every wheel and sdist carries the UI, also when `pip wheel .` is the first command in a fresh
clone. Everything else is maturin's own backend, passed through.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import maturin
from maturin import (  # re-exported hooks that need no UI
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

ROOT = Path(__file__).resolve().parent.parent
WEB = ROOT / "web"
STATIC_INDEX = ROOT / "python" / "pagurid" / "server" / "static" / "index.html"


def _ensure_web_ui() -> None:
    """Builds the chat UI unless it is there and newer than its sources."""
    sources = [path for folder in ("src", "public") for path in (WEB / folder).rglob("*") if path.is_file()]
    sources += [path for path in WEB.glob("*") if path.is_file()]
    newest_source = max((path.stat().st_mtime for path in sources), default=0.0)
    if STATIC_INDEX.is_file() and STATIC_INDEX.stat().st_mtime >= newest_source:
        return
    npm = shutil.which("npm")
    if npm is None:
        raise SystemExit(
            "pagurid: building the chat UI needs Node.js >= 20 with npm on the PATH; none was found"
        )
    if not (WEB / "node_modules").is_dir():
        subprocess.run([npm, "ci", "--no-audit", "--no-fund"], cwd=WEB, check=True)
    subprocess.run([npm, "run", "build"], cwd=WEB, check=True)


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):  # type: ignore[no-untyped-def]
    """Builds a wheel that carries the UI."""
    _ensure_web_ui()
    return maturin.build_wheel(wheel_directory, config_settings, metadata_directory)


def build_sdist(sdist_directory, config_settings=None):  # type: ignore[no-untyped-def]
    """Builds a source distribution that carries the built UI, so that it needs no Node."""
    _ensure_web_ui()
    return maturin.build_sdist(sdist_directory, config_settings)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):  # type: ignore[no-untyped-def]
    """Installs the checkout in place; the UI is built by `make web`."""
    return maturin.build_editable(wheel_directory, config_settings, metadata_directory)
