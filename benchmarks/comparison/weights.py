"""The default model in the formats that the peers read, made from the one file under `.peers/models/`.

Invariant: a file or directory with its final name is whole.
Must not know: servers, measurements.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

from comparison.install import PEERS_DIRECTORY, Unavailable
from pagurid.pull import resolve_model
from pagurid.tokenizer.gguf import tokenizer_from_gguf
from pagurid.weights.gguf_config import config_of_gguf
from pagurid.weights.gguf_file import GgufFile

MODEL = "smollm2"
OWN_KIND = "Q4_1"
"""What the default model's file holds."""
MODELS_DIRECTORY = PEERS_DIRECTORY / "models"
CONVERT_WITHIN_S = 600
_WORD = re.compile(" [a-z]{2,}")


def gguf(kind: str, llama_cpp: Path | None) -> Path:
    """The model in blocks of this kind, requantised by llama.cpp unless they are the file's own."""
    own = resolve_model(MODEL)
    if kind == OWN_KIND:
        return own
    target = MODELS_DIRECTORY / f"{MODEL}-{kind}.gguf"
    if not target.exists():
        if llama_cpp is None:
            raise Unavailable(f"{target.name} is made by llama.cpp's llama-quantize, which is not here")
        MODELS_DIRECTORY.mkdir(parents=True, exist_ok=True)
        unfinished = target.with_suffix(".unfinished")
        program = str(llama_cpp / "llama-quantize")
        _run([program, "--allow-requantize", str(own), str(unfinished), kind], what=target.name)
        unfinished.replace(target)
    return target


def hf_directory(dtype: str, transformers_python: Path) -> Path:
    """The dequantised model as transformers saves it."""
    target = MODELS_DIRECTORY / f"{MODEL}-{dtype}"
    if not target.exists():
        unfinished = target.with_suffix(".unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        script = str(Path(__file__).with_name("export_hf.py"))
        _run(
            [str(transformers_python), script, str(resolve_model(MODEL)), str(unfinished), dtype],
            what=target.name,
        )
        unfinished.replace(target)
    return target


def words_file() -> Path:
    """JSON: words with the space before them that are one token each, so that text has an exact length."""
    target = MODELS_DIRECTORY / f"{MODEL}-words.json"
    if not target.exists():
        MODELS_DIRECTORY.mkdir(parents=True, exist_ok=True)
        file = GgufFile(resolve_model(MODEL))
        vocab_size = config_of_gguf(file).vocab_size
        tokenizer = tokenizer_from_gguf(file.metadata, vocab_size=vocab_size, file=str(file.file))
        texts = ((id, tokenizer.decode([id])) for id in range(vocab_size))
        words = [text for id, text in texts if _WORD.fullmatch(text) and tokenizer.encode(text) == [id]]
        target.write_text(json.dumps(words))
    return target


def _run(command: list[str], *, what: str) -> None:
    environment = dict(os.environ, HF_HUB_OFFLINE="1")
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=CONVERT_WITHIN_S, check=False
    )
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        raise Unavailable(f"{what} could not be made: {lines[-1]}")
