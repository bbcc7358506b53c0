"""What tests of several folders share: a tiny model, and engines on it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tiny_models import make_tiny_model


@pytest.fixture(scope="session")
def tiny_model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Llama with grouped heads and a context of 512 tokens."""
    return make_tiny_model(tmp_path_factory.mktemp("tiny"))
