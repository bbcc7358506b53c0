"""Pagurid beside its peers: the same weights, the same load, taking turns; one table of ratios.

    python benchmarks/peers.py [--quick] [--peers llama.cpp vllm transformers] [--concurrency 1 4 16 32]
                               [--isa avx2] [--json FILE]

Installs llama.cpp (built here), vLLM's CPU build and transformers under `.peers/`, each in an environment of
its own, then measures engines (decoding at batch 1, 16, 32 from 192 tokens; a prompt of 512) and servers
(128 tokens in, 128 out). Each round measures all who are compared, so that a busy minute of the machine hits
all of them; a ratio is the median of the rounds' ratios. What could not be measured is in the table and in
the JSON with its reason.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import platform
import random
import signal
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from comparison import install, servers
from comparison.engines import Engine, LlamaCppEngine, PaguridEngine, ServedEngine, another_busy_process
from comparison.ratios import BUSY, EIGHT_BIT, FAITHFUL, LLAMA, QUIET, WITHOUT_HTTP, Figures, ratios_of
from comparison.table import print_tables
from comparison.weights import OWN_KIND, gguf

if TYPE_CHECKING:
    from collections.abc import Callable

ISA_VARIABLE = "PAGURID_CPU_ISA"
# The weights that llama.cpp is measured with.
DECODED = {1: ("Q8_0", "Q4_1", "Q4_0"), 16: ("Q8_0", "F16"), 32: ("Q8_0", "F16")}
PREFILLED = ("Q8_0", "F16")
SERVED = ("Q8_0", "Q4_1", "F16")
SERVED_QUICKLY = ("Q8_0",)
CLIENTS_WITHOUT_HTTP = 16
BUSY_LOAD_AVERAGE = 0.5

T = TypeVar("T")


class Comparison:
    """One run: who takes part, and what is known so far."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._random = random.Random(options.seed)
        self.figures = Figures()
        self._programs = self._attempt("llama.cpp", self._llama_cpp)
        # Both kinds of machine are served best by what they compute natively.
        native = "avx512_bf16" in Path("/proc/cpuinfo").read_text() and options.isa is None
        self._dtype = "bfloat16" if native else "float32"

    def _attempt(self, name: str, make: Callable[[], T]) -> T | None:
        """What `make` gives, or None with the reason noted."""
        try:
            return make()
        except install.Unavailable as error:
            self.figures.unavailable[name] = str(error)
            print(f"{name}: {error}", flush=True)
            return None

    def _asked_for(self, peer: str) -> None:
        if peer not in self._options.peers:
            raise install.Unavailable("not among --peers")

    def _llama_cpp(self) -> Path:
        self._asked_for("llama.cpp")
        return install.llama_cpp(self._options.isa)

    # ── engines ──────────────────────────────────────────────────────────────────────────────────────

    def measure_engines(self) -> None:
        engines = self._engines()
        for number in range(self._options.rounds):
            # Each second round goes backwards: nobody is always the one after somebody.
            turns = list(engines.items())[:: -1 if number % 2 else 1]
            for batch, kinds in DECODED.items():
                for name, each in self._compared(turns, kinds):
                    rate = self._attempt(name, partial(each.decode, batch))
                    self._note(name, f"decode_{batch}", rate)
            for name, each in self._compared(turns, PREFILLED):
                self._note(name, "prefill_512", self._attempt(name, each.prefill))
            faithful = engines[FAITHFUL]
            self._note(FAITHFUL, QUIET, faithful.decode(16))
            with another_busy_process():
                self._note(FAITHFUL, BUSY, faithful.decode(16))
            print(f"engines: round {number + 1} of {self._options.rounds} done", flush=True)

    def _engines(self) -> dict[str, Engine]:
        found: dict[str, Engine | None] = {
            EIGHT_BIT: self._attempt(EIGHT_BIT, lambda: PaguridEngine(gguf("Q8_0", self._programs), "int8")),
            FAITHFUL: PaguridEngine(gguf(OWN_KIND, self._programs), "auto"),
        }
        for kind, name in LLAMA.items():
            found[name] = self._attempt(name, partial(self._llama_engine, kind))
        return {name: each for name, each in found.items() if each is not None}

    def _llama_engine(self, kind: str) -> LlamaCppEngine:
        if self._programs is None:
            raise install.Unavailable(self.figures.unavailable["llama.cpp"])
        return LlamaCppEngine(self._programs, gguf(kind, self._programs))

    @staticmethod
    def _compared(turns: list[tuple[str, Engine]], kinds: tuple[str, ...]) -> list[tuple[str, Engine]]:
        names = {EIGHT_BIT, FAITHFUL, *(LLAMA[kind] for kind in kinds)}
        return [(name, each) for name, each in turns if name in names]

    def _note(self, name: str, measurement: str, rate: float | None) -> None:
        self.figures.engine.setdefault(name, {}).setdefault(measurement, []).append(rate)
        if rate is not None:
            print(f"{name}, {measurement}: {rate:.0f} tokens/s", flush=True)

    # ── servers ──────────────────────────────────────────────────────────────────────────────────────

    def measure_servers(self) -> None:
        running: dict[str, servers.Server] = {}
        without_http = ServedEngine(gguf(OWN_KIND, self._programs), "auto")
        try:
            for name, kind_of in self._server_kinds().items():
                server = self._attempt(name, partial(self._started, name, kind_of))
                if server is not None:
                    running[name] = server
                    self.figures.server[name] = {"start_s": server.start_s, "rounds": {}}
            for number in range(self._options.server_rounds):
                for clients in self._options.concurrency:
                    self._server_round(running, clients, backwards=number % 2 == 1)
                    if clients == CLIENTS_WITHOUT_HTTP:
                        rate = without_http.tokens_per_second(clients, self._requests(clients))
                        self._note(WITHOUT_HTTP, f"{clients} clients", rate)
                print(f"servers: round {number + 1} of {self._options.server_rounds} done", flush=True)
        finally:
            for name, server in running.items():
                self.figures.server[name]["peak_rss_bytes"] = server.peak_rss_bytes()
                server.stop()

    def _server_kinds(self) -> dict[str, Callable[[], servers.ServerKind]]:
        options, programs, dtype = self._options, self._programs, self._dtype
        clients = max(options.concurrency)
        protocol = options.pagurid_protocol

        def llama_server(kind: str) -> servers.ServerKind:
            if programs is None:
                raise install.Unavailable(self.figures.unavailable["llama.cpp"])
            return servers.llama_server(programs, gguf(kind, programs), clients)

        def vllm() -> servers.ServerKind:
            self._asked_for("vllm")
            if options.isa is not None:
                raise install.Unavailable("it cannot be held to an instruction set")
            return servers.vllm(dtype, clients)

        def transformers() -> servers.ServerKind:
            self._asked_for("transformers")
            return servers.transformers_serve(dtype, options.isa)

        return {
            EIGHT_BIT: lambda: servers.pagurid(gguf("Q8_0", programs), "int8", protocol),
            FAITHFUL: lambda: servers.pagurid(gguf(OWN_KIND, programs), "auto", protocol),
            **{
                f"llama-server {kind}": partial(llama_server, kind)
                for kind in (SERVED_QUICKLY if options.quick else SERVED)
            },
            f"vllm {dtype}": vllm,
            f"transformers serve {dtype}": transformers,
        }

    def _started(self, name: str, kind_of: Callable[[], servers.ServerKind]) -> servers.Server:
        kind = kind_of()
        print(f"starting {name} …", flush=True)
        folder = install.PEERS_DIRECTORY / "logs"
        folder.mkdir(parents=True, exist_ok=True)
        server = servers.Server(kind, folder / f"{name.replace(' ', '-').replace(',', '')}.log")
        try:
            server.load(4, 4, seed=self._random.randrange(1 << 30))  # warm; not noted
        except BaseException:
            server.stop()
            raise
        return server

    def _server_round(self, running: dict[str, servers.Server], clients: int, *, backwards: bool) -> None:
        seed = self._random.randrange(1 << 30)
        for name, server in list(running.items())[:: -1 if backwards else 1]:
            load = self._attempt(name, partial(server.load, clients, self._requests(clients), seed))
            self.figures.server[name]["rounds"].setdefault(str(clients), []).append(load)
            if load is not None:
                print(f"{name}, {clients} clients: {load['tokens_per_second']:.0f} tokens/s", flush=True)

    def _requests(self, clients: int) -> int:
        """Of one load: enough tokens to be measured, also with one client."""
        return max(2, clients) if self._options.quick else max(4, 2 * clients)


def machine() -> dict[str, Any]:
    models = [
        line.split(": ")[1] for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line
    ]
    return {
        "cpu": models[0] if models else platform.processor(),
        "cpus": servers.num_cpus(),
        # Peers whose threads wait for each other by spinning lose most of their speed beside other programs.
        "load_average_before": os.getloadavg()[0],
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peers", nargs="+", choices=list(install.PEERS), default=list(install.PEERS))
    parser.add_argument("--concurrency", nargs="+", type=int, help="1 4 16 32; with --quick 1 16")
    parser.add_argument("--rounds", type=int, help="of the engines: 5; with --quick 2")
    parser.add_argument("--server-rounds", type=int, help="3; with --quick 2")
    parser.add_argument("--quick", action="store_true", help="about ten minutes once all is installed")
    parser.add_argument(
        "--only", choices=["engines", "servers"], help="half of it; the other ratios are null"
    )
    parser.add_argument("--isa", choices=["avx2"], help="hold Pagurid to it, beside llama.cpp built for it")
    parser.add_argument("--pagurid-protocol", choices=["ws", "openai"], default="ws")
    parser.add_argument("--seed", type=int, help="of the prompts")
    parser.add_argument("--json", type=Path, help="write all figures of every round to this file, too")
    options = parser.parse_args()
    options.concurrency = options.concurrency or ([1, 16] if options.quick else [1, 4, 16, 32])
    options.rounds = options.rounds or (2 if options.quick else 5)
    options.server_rounds = options.server_rounds or (2 if options.quick else 3)
    if options.isa is not None:
        os.environ[ISA_VARIABLE] = options.isa

    # As Ctrl-C does: ends what was started, and says what was found.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    about = machine()
    if about["load_average_before"] > BUSY_LOAD_AVERAGE:
        print(f"Others use this machine (load {about['load_average_before']:.1f}): do not trust the ratios.")
    comparison = Comparison(options)
    try:
        if options.only != "servers":
            comparison.measure_engines()
        if options.only != "engines":
            comparison.measure_servers()
    finally:
        # Also what an interrupted run has found.
        ratios = ratios_of(comparison.figures, options.isa)
        print_tables(comparison.figures, ratios)
        if options.json:
            content = {
                "machine": about,
                "isa": options.isa,
                "peers": install.PEERS,
                **dataclasses.asdict(comparison.figures),
                "ratios": {ratio.name: ratio.value for ratio in ratios},
                "goals": {ratio.name: ratio.goal for ratio in ratios},
                "notes": {ratio.name: ratio.note for ratio in ratios},
            }
            options.json.write_text(json.dumps(content, indent=2) + "\n")


if __name__ == "__main__":
    main()
