"""`pagurid pull`."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["pull"]


def pull(name: Annotated[str, typer.Argument(help="A model by name, such as `smollm2`.")]) -> None:
    """Download a model into the cache, verified."""
    from pagurid.pull import pull as pull_model

    typer.echo(pull_model(name))
