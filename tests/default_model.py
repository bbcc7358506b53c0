"""The default model's file, for the few tests that need real knowledge; fetched once if it is missing."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from pagurid.pull import resolve_model


@cache
def default_model_file() -> Path:
    return resolve_model("smollm2")
