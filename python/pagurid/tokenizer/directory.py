"""A tokenizer from a directory in the hub's layout: `tokenizer.json`, `tokenizer_config.json`, templates.

Owns: where special tokens and chat templates are found there.
Must not know: weights, the model's config.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tokenizers

from pagurid.errors import ModelLoadError
from pagurid.model_files import read_json_if_present
from pagurid.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

__all__ = ["tokenizer_from_directory"]


def tokenizer_from_directory(
    directory: Path, *, vocab_size: int, eos_token_ids: Iterable[int] = ()
) -> Tokenizer:
    """ModelLoadError names the file that is missing or broken."""
    file = directory / "tokenizer.json"
    if not file.exists():
        message = f"{file} is missing"
        if (directory / "tokenizer.model").exists():
            message += ": a bare tokenizer.model is not supported; save the fast tokenizer beside it"
        raise ModelLoadError(message)
    try:
        backend = tokenizers.Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises a bare Exception
        raise ModelLoadError(f"{file} cannot be read: {error}") from None
    config = read_json_if_present(directory / "tokenizer_config.json")
    return Tokenizer(
        backend,
        vocab_size=vocab_size,
        special_tokens=_special_tokens(read_json_if_present(directory / "special_tokens_map.json") | config),
        eos_token_ids=eos_token_ids,
        chat_templates=_chat_templates(directory, config),
        file=str(directory),
    )


def _special_tokens(config: Mapping[str, Any]) -> dict[str, str]:
    """`{"bos_token": "<s>"}` from both spellings: text, or an object with `content`."""
    tokens: dict[str, str] = {}
    for name, value in config.items():
        spelled = value.get("content") if isinstance(value, dict) else value
        if name.endswith("_token") and isinstance(spelled, str):
            tokens[name] = spelled
    return tokens


def _chat_templates(directory: Path, config: Mapping[str, Any]) -> dict[str, str]:
    """By name. Files beside the config win over what the config holds."""
    templates: dict[str, str] = {}
    inline = config.get("chat_template")
    if isinstance(inline, str):
        templates["default"] = inline
    elif isinstance(inline, list):
        templates.update({entry["name"]: entry["template"] for entry in inline})
    for file in sorted((directory / "additional_chat_templates").glob("*.jinja")):
        templates[file.stem] = file.read_text(encoding="utf-8")
    single = directory / "chat_template.jinja"
    if single.exists():
        templates["default"] = single.read_text(encoding="utf-8")
    return templates
