"""Options that several verbs share: the engine's, named as vLLM names them.

Must not know: the engine.
"""

from __future__ import annotations

from typing import Annotated

import typer

from pagurid.config import DEFAULT_MODEL, Dtype, Quantization
from pagurid.memory_size import parse_bytes

__all__ = [
    "CostPerHour",
    "DtypeOption",
    "KvBlocks",
    "KvBytes",
    "MaxModelLen",
    "Model",
    "QuantizationOption",
    "Threads",
]


def _parse_size(text: str) -> int:
    try:
        return parse_bytes(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


Model = Annotated[
    str, typer.Option(help=f"`{DEFAULT_MODEL}`, a directory with safetensors, or a .gguf file.")
]
MaxModelLen = Annotated[
    int | None, typer.Option(help="Longest prompt + answer in tokens; the model's context by default.")
]
DtypeOption = Annotated[
    Dtype,
    typer.Option(
        help="Float weights are kept as the file has them (auto) or converted; quantised ones follow "
        "--quantization, and are dequantised to this with none (auto: float32)."
    ),
]
QuantizationOption = Annotated[
    Quantization,
    typer.Option(
        help="Quantised weights: activations are rounded to int16 (auto: as good as float32) or int8 "
        "(faster, less exact), or the weights are dequantised to --dtype (none)."
    ),
]
Threads = Annotated[int | None, typer.Option(min=1, help="CPU threads; all cores by default.")]
KvBlocks = Annotated[int | None, typer.Option(help="Size of the KV pool in blocks.")]
KvBytes = Annotated[
    int | None,
    typer.Option(
        "--kv-cache-memory",
        "--kv-cache-memory-bytes",
        parser=_parse_size,
        metavar="SIZE",
        help="Size of the KV pool, such as 2GiB; a quarter of the free memory, at most 4 GiB, by default.",
    ),
]
CostPerHour = Annotated[
    float | None, typer.Option(min=0, help="Price of this machine per hour; gives every answer its cost.")
]
