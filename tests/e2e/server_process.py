"""A real server in a process of its own, for tests that look at it from outside."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
START_WITHIN_S = 120
STOP_WITHIN_S = 20


def _address(log: Path) -> str | None:
    """Where the server says that it listens, once it does."""
    said = re.search(r"listening at (http://\S+)", log.read_text(errors="replace"))
    return said[1] if said else None


@contextlib.contextmanager
def serve(model: Path, log: Path, *flags: str) -> Iterator[str]:
    """Serves `model` on a free port until the block ends; gives the server's address."""
    command = [sys.executable, "-m", "pagurid.cli", "serve", "--model", str(model), "--port", "0", *flags]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "OMP_NUM_THREADS": "1"}
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment)
    try:
        deadline = time.monotonic() + START_WITHIN_S
        while (url := _address(log)) is None:
            if process.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"the server did not start:\n{log.read_text(errors='replace')}")
            time.sleep(0.1)
        yield url
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(STOP_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
