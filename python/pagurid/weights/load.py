"""`load_model`: from a path to a model that can run, with its config and tokenizer.

Owns: telling the formats apart, and the union of end-of-sequence ids from all places (CASES D33).
Must not know: the engine, requests.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

import torch

from pagurid import ops
from pagurid.errors import ModelLoadError
from pagurid.machine_memory import available_memory_bytes
from pagurid.model_files import read_json, read_json_if_present
from pagurid.models import LlamaForCausalLM, ModelConfig
from pagurid.models.config import token_ids_of
from pagurid.tokenizer.directory import tokenizer_from_directory
from pagurid.tokenizer.gguf import tokenizer_from_gguf
from pagurid.weights.fill import fill_parameters
from pagurid.weights.gguf_config import config_of_gguf
from pagurid.weights.gguf_file import GgufFile
from pagurid.weights.linear_weight import WeightTypes
from pagurid.weights.safetensors_dir import safetensors_of

if TYPE_CHECKING:
    from pathlib import Path

    from pagurid.config import Dtype, Quantization
    from pagurid.tokenizer import Tokenizer

__all__ = ["LoadedModel", "load_model"]

_ACTIVATIONS: Final[dict[Quantization, Literal["int8", "int16"] | None]] = {
    "auto": "int16",
    "int16": "int16",
    "int8": "int8",
    "none": None,
}
_DTYPES: Final[dict[Dtype, torch.dtype | None]] = {
    "auto": None,
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """Everything an engine needs of a model. `name` is the directory's or the file's."""

    model: LlamaForCausalLM
    config: ModelConfig
    tokenizer: Tokenizer
    name: str


def load_model(
    path: Path,
    *,
    max_model_len: int | None = None,
    kernels: Literal["rust", "reference"] = "rust",
    quantization: Quantization = "none",
    dtype: Dtype = "auto",
) -> LoadedModel:
    """Loads a directory with safetensors, a .gguf file, or a directory with just one such file.

    ModelLoadError says in one line what is wrong.
    `quantization` says what becomes of the quantised weights of a GGUF file, `dtype` of all others, as in
    `EngineConfig`. A float weight that is neither converted nor merged with others stays a view of the mapped
    file, which must not change while the model lives.
    `max_model_len` bounds the positions that can be computed; the model's own context by default.
    """
    if not path.exists():
        raise ModelLoadError(f"{path} does not exist")
    ops.select(kernels)
    if path.is_dir():
        return _load_directory(path, max_model_len, quantization, dtype)
    if path.suffix == ".gguf":
        return _load_gguf(path, max_model_len, quantization, dtype)
    raise ModelLoadError(f"{path} is neither a directory with safetensors nor a .gguf file")


def _load_directory(
    directory: Path, max_model_len: int | None, quantization: Quantization, dtype: Dtype
) -> LoadedModel:
    config_file = directory / "config.json"
    if not config_file.exists() and (files := sorted(directory.glob("*.gguf"))):
        if len(files) > 1:
            names = ", ".join(file.name for file in files)
            raise ModelLoadError(f"{directory} holds several GGUF files, name one of them: {names}")
        return _load_gguf(files[0], max_model_len, quantization, dtype)
    if quantization in ("int16", "int8"):
        raise ModelLoadError(_nothing_quantized(directory, quantization))
    content = read_json(config_file)
    config = ModelConfig.from_hf(content, file=str(config_file))
    tensors = safetensors_of(directory)
    generation = read_json_if_present(directory / "generation_config.json")
    tokenizer = tokenizer_from_directory(
        directory,
        vocab_size=config.vocab_size,
        eos_token_ids=config.eos_token_ids.union(token_ids_of(generation.get("eos_token_id"))),
    )
    config = dataclasses.replace(config, eos_token_ids=tokenizer.eos_token_ids)
    types = WeightTypes(dtype=_DTYPES[dtype])
    model = _empty_model(config, max_model_len, directory.name, types.memory_bytes(tensors))
    fill_parameters(model, tensors, title=directory.name, types=types)
    return LoadedModel(model, config, tokenizer, directory.name)


def _load_gguf(
    file: Path, max_model_len: int | None, quantization: Quantization, dtype: Dtype
) -> LoadedModel:
    gguf_file = GgufFile(file)
    config = config_of_gguf(gguf_file)
    tokenizer = tokenizer_from_gguf(gguf_file.metadata, vocab_size=config.vocab_size, file=str(file))
    config = dataclasses.replace(config, eos_token_ids=tokenizer.eos_token_ids)
    tensors = gguf_file.tensors(config)
    if quantization in ("int16", "int8") and all(tensor.quantized is None for tensor in tensors):
        raise ModelLoadError(_nothing_quantized(file, quantization))
    types = WeightTypes(dtype=_DTYPES[dtype], activations=_ACTIVATIONS[quantization])
    model = _empty_model(config, max_model_len, file.name, types.memory_bytes(tensors))
    fill_parameters(model, tensors, title=file.name, types=types)
    return LoadedModel(model, config, tokenizer, file.stem)


def _nothing_quantized(path: Path, quantization: Quantization) -> str:
    return f"--quantization {quantization} needs a GGUF file with quantised weights; {path} has none"


def _empty_model(config: ModelConfig, max_model_len: int | None, name: str, needed: int) -> LlamaForCausalLM:
    """Uninitialised, if there are `needed` bytes of memory: a system out of memory kills without a word."""
    available = available_memory_bytes()
    if available is not None and needed > available:
        raise ModelLoadError(
            f"{name} needs {needed / 2**30:.1f} GiB of memory, "
            f"{available / 2**30:.1f} GiB are free; use a smaller model or a larger machine"
        )
    return LlamaForCausalLM(config, max_model_len=_context(config, max_model_len))


def _context(config: ModelConfig, max_model_len: int | None) -> int:
    longest = config.max_position_embeddings
    if max_model_len is None:
        return longest
    if not 1 <= max_model_len <= longest:
        raise ModelLoadError(
            f"max_model_len is {max_model_len}; this model computes from 1 to {longest} tokens"
        )
    return max_model_len
