"""`pagurid chat --url`: a client, in a process of its own that needs nothing of the engine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from conftest import RunningServer

PYTHON_PATH = Path(__file__).resolve().parents[2] / "python"


def test_an_answer_from_a_server_needs_no_torch(server: RunningServer) -> None:
    arguments = ["chat", "--url", server.url, "-p", "The tide", "--max-tokens", "8", "--temperature", "0"]
    code = (
        f"import sys; sys.argv[1:] = {arguments!r}\n"
        "import atexit; atexit.register(lambda: print('imported', 'torch' in sys.modules))\n"
        "from pagurid.cli.main import main; main()"
    )
    environment = {**os.environ, "PYTHONPATH": str(PYTHON_PATH)}
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment, check=False)
    assert result.returncode == 0, result.stderr
    answer, _, imported = result.stdout.rstrip("\n").rpartition("\n")
    assert answer.strip()
    assert imported == "imported False"
