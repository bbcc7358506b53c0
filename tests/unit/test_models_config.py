"""What a config.json may ask for, and what is refused because it would be computed wrongly."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from pagurid.errors import ModelLoadError
from pagurid.weights import load_model
from tiny_models import TinyModel, make_tiny_model, write_json

if TYPE_CHECKING:
    from pathlib import Path


def refusal(path: Path, **options: Any) -> str:
    with pytest.raises(ModelLoadError) as caught:
        load_model(path, **options)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    return make_tiny_model(tmp_path / "tiny", tied=False)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            {"architectures": ["GPT2LMHeadModel"]},
            "architecture 'GPT2LMHeadModel' is not supported; supported: Llama",
        ),
        ({"architectures": []}, "architecture '' is not supported"),
        ({"quantization_config": {"quant_method": "gptq", "bits": 4}}, "quantized checkpoints (gptq)"),
        ({"hidden_act": "gelu"}, "hidden_act 'gelu' is not supported; supported: silu"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "rope type 'yarn' is not supported"),
        ({"rope_scaling": {"type": "dynamic", "factor": 4.0}}, "rope type 'dynamic' is not supported"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "has no 'low_freq_factor'"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor 0.5 is not supported"),
        ({"hidden_size": None}, "has no 'hidden_size'"),
        ({"hidden_size": "many"}, "a value of the wrong type"),
        ({"num_key_value_heads": 3}, "num_attention_heads (4) must be a multiple of num_key_value_heads (3)"),
        ({"num_hidden_layers": 0}, "num_layers must be at least 1, got 0"),
    ],
)
def test_config_that_would_be_computed_wrongly(tiny: Path, change: dict[str, Any], expected: str) -> None:
    """Refused in one line that names the file and the value."""
    content = json.loads((tiny / "config.json").read_text()) | change
    write_json(tiny / "config.json", {key: value for key, value in content.items() if value is not None})
    assert expected in refusal(tiny)


def test_max_model_len(tiny: Path) -> None:
    """Bounds the table of positions; longer than the model's context is refused with both numbers."""
    loaded = load_model(tiny, max_model_len=100)
    assert loaded.model.max_model_len == 100
    assert loaded.model.cos_sin.shape == (100, 16)
    assert "max_model_len is 513; this model computes from 1 to 512 tokens" in refusal(
        tiny, max_model_len=513
    )
    assert "max_model_len is 0" in refusal(tiny, max_model_len=0)


def test_sliding_window_bounds_the_context(tmp_path: Path) -> None:
    """Up to its window such a model attends to everything; beyond, it would be computed wrongly."""
    mistral = TinyModel(architecture="MistralForCausalLM", extra_config={"sliding_window": 128})
    assert load_model(make_tiny_model(tmp_path / "m", mistral)).config.max_position_embeddings == 128
    qwen = TinyModel(
        architecture="Qwen2ForCausalLM",
        attention_bias=True,
        extra_config={"sliding_window": 128, "use_sliding_window": False},
    )
    assert load_model(make_tiny_model(tmp_path / "q", qwen)).config.max_position_embeddings == 512
