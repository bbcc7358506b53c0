"""The table of errors is one: Python classes, wire codes and HTTP statuses agree with the Rust core."""

from __future__ import annotations

from pagurid import _core
from pagurid.errors import ERRORS


def test_rust_and_python_hold_the_same_table() -> None:
    """Same codes, same statuses, same order."""
    python = [(code, error.http_status) for code, error in ERRORS.items()]
    assert _core.error_table() == python
    assert all(error.code == code for code, error in ERRORS.items())
