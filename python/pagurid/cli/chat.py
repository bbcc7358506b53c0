"""`pagurid chat`: a conversation in the terminal.

Owns: the dialogue (prompt, streamed answer, figures), and what Ctrl-C and Ctrl-D mean.
Must not know: how answers are made; `cli.partners` has the two ways.
"""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pagurid.cli.options import MaxModelLen, Model, Threads
from pagurid.config import DEFAULT_MODEL

if TYPE_CHECKING:
    from pagurid.cli.partners import Partner

__all__ = ["chat"]


def chat(
    prompt: Annotated[str | None, typer.Option("-p", "--prompt", help="Ask one question and leave.")] = None,
    model: Model = DEFAULT_MODEL,
    url: Annotated[
        str | None, typer.Option(help="A running server, such as http://127.0.0.1:8000; else in-process.")
    ] = None,
    api_key: Annotated[str | None, typer.Option(envvar="PAGURID_API_KEY", help="The server's key.")] = None,
    system: Annotated[str | None, typer.Option(help="System prompt.")] = None,
    temperature: Annotated[float | None, typer.Option(help="0 is greedy.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Nucleus.")] = None,
    max_tokens: Annotated[int | None, typer.Option(help="Longest answer.")] = None,
    seed: Annotated[int | None, typer.Option(help="The same seed gives the same answer.")] = None,
    max_model_len: MaxModelLen = None,
    threads: Threads = None,
) -> None:
    """Chat in the terminal. Ctrl-C stops an answer, Ctrl-D leaves."""
    from pagurid.cli.partners import engine_partner, server_partner

    settings = {"temperature": temperature, "top_p": top_p, "max_tokens": max_tokens, "seed": seed}
    sampling = {name: value for name, value in settings.items() if value is not None}
    if url is not None:
        partner = server_partner(url, api_key)
    else:
        if sys.stderr.isatty():
            typer.echo(f"Loading {model} …", err=True)
        partner = engine_partner(model, max_model_len=max_model_len, threads=threads)
    messages: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
    with partner:
        if prompt is not None:
            _answer(partner, [*messages, {"role": "user", "content": prompt}], sampling)
            return
        _converse(partner, messages, sampling)


def _converse(partner: Partner, messages: list[dict[str, Any]], sampling: dict[str, Any]) -> None:
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401 (gives `input` its line editing and history)
    while True:
        try:
            text = input("› ")
        except EOFError:
            print()
            return
        except KeyboardInterrupt:
            print()
            continue
        if not text.strip():
            continue
        messages.append({"role": "user", "content": text})
        answer = _answer(partner, messages, sampling)
        messages.append({"role": "assistant", "content": answer})


def _answer(partner: Partner, messages: list[dict[str, Any]], sampling: dict[str, Any]) -> str:
    """Streams one answer; Ctrl-C stops it and keeps what came."""
    parts: list[str] = []
    answer = partner.answer(messages, sampling)
    try:
        for text in answer:
            parts.append(text)
            print(text, end="", flush=True)
    except KeyboardInterrupt:
        answer.close()
    print()
    if sys.stdout.isatty() and partner.figures is not None:
        typer.secho(partner.figures, dim=True)
    return "".join(parts)
