"""The command line, as a person meets it: in a process of its own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from default_model import default_model_file

ROOT = Path(__file__).resolve().parents[2]


def pagurid(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "COLUMNS": "200"}
    command = [sys.executable, "-m", "pagurid.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, check=False)


def test_help_names_the_verbs() -> None:
    result = pagurid("--help")
    assert result.returncode == 0
    for verb in ("serve", "chat", "pull", "version"):
        assert verb in result.stdout


@pytest.mark.parametrize(
    "code",
    [
        "import pagurid, pagurid.client, pagurid.cli.main",
        "from pagurid import EngineConfig, PaguridError, SamplingParams",
        "import sys; sys.argv[1:] = ['--help']; from pagurid.cli.main import main; main()",
        "import sys; sys.argv[1:] = ['serve', '--help']; from pagurid.cli.main import main; main()",
        "import sys; sys.argv[1:] = ['pull', 'nothing']; from pagurid.cli.main import main; main()",
        "import sys; sys.argv[1:] = ['chat', '-p', 'x', '--url', 'http://127.0.0.1:9']; "
        "from pagurid.cli.main import main; main()",
    ],
)
def test_what_computes_nothing_does_not_import_torch(code: str) -> None:
    ending = "import atexit, sys; atexit.register(lambda: print('imported', 'torch' in sys.modules)); "
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    command = [sys.executable, "-c", ending + code]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment, check=False)
    assert "Traceback" not in result.stderr
    assert result.stdout.splitlines()[-1] == "imported False"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["chat", "-p", "x", "--model", "/no/such/model"], "there is no model '/no/such/model'"),
        (["pull", "nothing"], "no model named 'nothing'"),
        (["chat", "-p", "x", "--url", "http://127.0.0.1:9"], "cannot talk to http://127.0.0.1:9"),
    ],
)
def test_an_expected_error_is_one_line(arguments: list[str], expected: str) -> None:
    result = pagurid(*arguments)
    assert result.returncode == 1
    [line] = result.stderr.strip().splitlines()
    assert expected in line


def test_a_port_in_use_is_one_line(tiny_model_dir: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        result = pagurid("serve", "--model", str(tiny_model_dir), "--port", str(port))
    assert result.returncode == 1
    assert f"port {port} on 127.0.0.1 is in use" in result.stderr
    assert "Traceback" not in result.stderr


def test_too_little_memory_is_one_line(tiny_model_dir: Path) -> None:
    arguments = ["--model", str(tiny_model_dir), "--port", "0", "--kv-cache-memory", "1000"]
    result = pagurid("serve", *arguments)
    assert result.returncode == 1
    assert "too little memory" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("option", ["--kv-cache-memory", "--kv-cache-memory-bytes"])
def test_a_size_that_is_none_is_explained(option: str) -> None:
    result = pagurid("serve", option, "2 boxes")
    assert result.returncode == 2
    assert "expected a size such as 2GiB" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.slow
def test_the_capital_of_france() -> None:
    result = pagurid(
        "chat",
        "-p",
        "What is the capital of France?",
        "--temperature",
        "0",
        "--model",
        str(default_model_file()),
    )
    assert result.returncode == 0
    assert "Paris" in result.stdout
