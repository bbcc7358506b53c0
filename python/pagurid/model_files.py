"""The JSON files of a model directory.

Owns: one way to read them, and to say what is wrong with one.
Must not know: what they mean.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pagurid.errors import ModelLoadError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["read_json", "read_json_if_present"]


def read_json(file: Path) -> dict[str, Any]:
    """The object in a JSON file; ModelLoadError if it is not there, not JSON or not an object."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelLoadError(f"cannot read {file}: {error.strerror}") from None
    except ValueError as error:
        raise ModelLoadError(f"{file} is not JSON: {error}") from None
    if not isinstance(content, dict):
        raise ModelLoadError(f"{file}: expected a JSON object, got {type(content).__name__}")
    return content


def read_json_if_present(file: Path) -> dict[str, Any]:
    """As `read_json`; an absent file is an empty object."""
    return read_json(file) if file.exists() else {}
