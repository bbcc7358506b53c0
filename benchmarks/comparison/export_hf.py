"""A GGUF file as a directory with safetensors, dequantised, for servers that read nothing else.

python export_hf.py MODEL.gguf DIRECTORY float32|bfloat16     # with transformers' Python
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig


def export(source: Path, directory: Path, dtype: torch.dtype) -> None:
    model = AutoModelForCausalLM.from_pretrained(
        source.parent,
        gguf_file=source.name,
        quantization_config=GgufConfig(dequantize=True),
        dtype=dtype,
    )
    model.save_pretrained(directory)
    AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name).save_pretrained(directory)


if __name__ == "__main__":
    export(Path(sys.argv[1]), Path(sys.argv[2]), getattr(torch, sys.argv[3]))
