"""The default model's file, for the few tests that need real knowledge; fetched once if it is missing."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from pagurid.pull import resolve_model

if TYPE_CHECKING:
    from pathlib import Path


@cache
def default_model_file() -> Path:
    return resolve_model("smollm2")
