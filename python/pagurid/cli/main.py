"""The command line: what there is, and how its errors look.

Owns: the verbs, and the rule that an expected error is one line on stderr and exit code 1, never a traceback.
Must not know: how the verbs work; torch is imported only by those that need it.
"""

from __future__ import annotations

import logging
import sys

import typer

from pagurid.cli.chat import chat
from pagurid.cli.pull import pull
from pagurid.cli.serve import serve
from pagurid.errors import ConfigError, PaguridError

__all__ = ["main"]

app = typer.Typer(
    help="Serves large language models.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(serve)
app.command()(chat)
app.command()(pull)


@app.command()
def version() -> None:
    """Print the version."""
    from pagurid._core import __version__

    typer.echo(__version__)


def main() -> None:
    """The entry point."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    try:
        app()
    except (ConfigError, PaguridError) as error:
        print(f"pagurid: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
