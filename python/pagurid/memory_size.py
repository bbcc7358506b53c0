"""Sizes of memory as people write and read them: `2GiB`.

Must not know: what the memory is for.
"""

from __future__ import annotations

import re

__all__ = ["format_bytes", "parse_bytes"]

_UNITS = {"": 1, "b": 1} | {
    f"{letter}{suffix}": base**power
    for power, letter in enumerate("kmgt", start=1)
    for suffix, base in (("ib", 1024), ("b", 1000))
}


def parse_bytes(text: str) -> int:
    """`2GiB`, `512 MiB`, `1.5GB` (decimal), or plain bytes. Raises ValueError."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", text.strip().lower())
    if match is None or match[2] not in _UNITS:
        raise ValueError(f"expected a size such as 2GiB, 512MiB, 2GB or a number of bytes; got {text!r}")
    return int(float(match[1]) * _UNITS[match[2]]) if "." in match[1] else int(match[1]) * _UNITS[match[2]]


def format_bytes(size: int) -> str:
    """In GiB from one on, else in MiB."""
    return f"{size / 2**30:.2f} GiB" if size >= 2**30 else f"{size / 2**20:.1f} MiB"
