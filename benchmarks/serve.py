"""A load generator for servers: many clients at once, exact prompt and answer lengths, one table.

    python benchmarks/serve.py --self-hosted                         # starts Pagurid on the default model
    python benchmarks/serve.py --url http://127.0.0.1:8000 --protocol ws
    python benchmarks/serve.py --url http://127.0.0.1:8080 --protocol openai    # llama-server, vLLM, …

Prompts are random token ids, so nothing is cached and lengths are exact; answers ignore the end of sequence.
For servers that take no ids, `--words` makes prompts of words that are one token each: lengths stay exact.
Times are the client's own. A stream's first piece ends its TTFT, further pieces give inter-token times.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import re
import secrets
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
from websockets.asyncio.client import ClientConnection, connect

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

FIRST_TOKEN_ID, LAST_TOKEN_ID = 100, 10_000
START_WITHIN_S = 180


@dataclass(slots=True)
class Answer:
    """What one client saw."""

    started_at: float
    piece_times: list[float] = field(default_factory=list)
    prompt_tokens: int | None = None
    """What the server counted."""
    completion_tokens: int = 0
    error: str | None = None


Prompt = list[int] | str
Usage = dict[str, Any]


class OpenAi:
    """POST /v1/completions, streamed. `extra` joins each body; its nulls take fields out."""

    def __init__(self, url: str, model: str | None, concurrency: int, extra: dict[str, Any]) -> None:
        # A connection each: some servers close one that was kept alive just when the next request is sent.
        limits = httpx.Limits(max_connections=concurrency, max_keepalive_connections=0)
        self._client = httpx.AsyncClient(base_url=url, timeout=600, limits=limits)
        self._model = model
        self._extra = extra

    async def __aenter__(self) -> OpenAi:
        if self._model is None:
            self._model = (await self._client.get("/v1/models")).json()["data"][0]["id"]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    async def pieces(self, prompt: Prompt, output_tokens: int) -> AsyncIterator[Usage | None]:
        """Yields None for a piece of text, at last the server's count of tokens."""
        body = {
            "model": self._model,
            "prompt": prompt,
            "max_tokens": output_tokens,
            "temperature": 0.0,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
            **self._extra,
        }
        body = {name: value for name, value in body.items() if value is not None}
        async with self._client.stream("POST", "/v1/completions", json=body) as response:
            if response.status_code != 200:
                raise RuntimeError(f"HTTP {response.status_code}: {(await response.aread())[:200]!r}")
            usage = {"completion_tokens": output_tokens}
            async for line in response.aiter_lines():
                if not line.startswith("data: ") or line == "data: [DONE]":
                    continue
                event = json.loads(line[6:])
                if "error" in event:
                    raise RuntimeError(str(event["error"]))
                if event.get("usage"):
                    usage = event["usage"]
                if any(choice.get("text") for choice in event.get("choices", [])):
                    yield None
            yield usage


class Ws:
    """pagurid.v1: every client a generation on a socket of its own."""

    def __init__(self, url: str, model: str | None, concurrency: int, extra: dict[str, Any]) -> None:
        self._address = url.replace("http", "ws", 1) + "/v1/ws"
        self._model = model
        self._idle: list[ClientConnection] = []
        self._concurrency = concurrency
        self._extra = extra

    async def __aenter__(self) -> Ws:
        for _ in range(self._concurrency):
            socket = await connect(self._address, subprotocols=["pagurid.v1"], compression=None)  # type: ignore[list-item]
            await socket.send(json.dumps({"type": "hello", "protocol": 1}))
            await socket.recv()
            self._idle.append(socket)
        return self

    async def __aexit__(self, *_: object) -> None:
        for socket in self._idle:
            await socket.close()

    async def pieces(self, prompt: Prompt, output_tokens: int) -> AsyncIterator[Usage | None]:
        """Yields None for a piece of text, at last the server's count of tokens."""
        socket = self._idle.pop()
        sampling = {"max_tokens": output_tokens, "temperature": 0.0, "ignore_eos": True}
        frame: dict[str, Any] = {"type": "generate", "id": secrets.token_urlsafe(18), "prompt": prompt}
        frame |= {"sampling": sampling, **self._extra}
        if self._model is not None:
            frame["model"] = self._model
        await socket.send(json.dumps(frame))
        while True:
            event = json.loads(await socket.recv())
            match event["type"]:
                case "ping":
                    await socket.send(json.dumps({"type": "pong", "t": event["t"]}))
                case "delta":
                    yield None
                case "done":
                    self._idle.append(socket)
                    yield event["usage"]
                    return
                case "error":
                    self._idle.append(socket)
                    raise RuntimeError(f"{event['code']}: {event['message']}")


async def ask(client: OpenAi | Ws, prompt: Prompt, output_tokens: int) -> Answer:
    """One request, timed."""
    answer = Answer(time.perf_counter())
    try:
        async for usage in client.pieces(prompt, output_tokens):
            if usage is None:
                answer.piece_times.append(time.perf_counter())
            else:
                answer.completion_tokens = usage["completion_tokens"]
                answer.prompt_tokens = usage.get("prompt_tokens")
    except Exception as error:
        answer.error = f"{type(error).__name__}: {error}"
    return answer


async def load(options: argparse.Namespace, url: str) -> dict[str, Any]:
    """The whole run: `concurrency` clients that each ask again as soon as they are answered."""
    # A seed of its own, or a second run would find its prompts in the server's prefix cache.
    rng = random.Random(options.seed)
    words = json.loads(options.words.read_text()) if options.words else None

    def random_prompt(length: int) -> Prompt:
        if words is not None:
            return "".join(rng.choices(words, k=length))
        return [rng.randint(FIRST_TOKEN_ID, LAST_TOKEN_ID) for _ in range(length)]

    prompts = [random_prompt(options.prompt_tokens) for _ in range(options.requests or options.concurrency)]
    kind: type[OpenAi | Ws] = {"openai": OpenAi, "ws": Ws}[options.protocol]
    async with kind(url, options.model, options.concurrency, options.body) as client:
        warm_up = await ask(client, random_prompt(8), 4)
        if warm_up.error:
            raise SystemExit(f"{url} does not answer: {warm_up.error}")
        waiting = list(reversed(prompts))
        answers: list[Answer] = []

        async def one_client() -> None:
            while waiting:
                answers.append(await ask(client, waiting.pop(), options.output_tokens))

        started_at, cpu_s = time.perf_counter(), time.process_time()
        await asyncio.gather(*(one_client() for _ in range(options.concurrency)))
        elapsed_s, cpu_s = time.perf_counter() - started_at, time.process_time() - cpu_s
    return figures(options, answers, elapsed_s) | {"client_cpu_s": cpu_s}


def figures(options: argparse.Namespace, answers: list[Answer], elapsed_s: float) -> dict[str, Any]:
    """From what the clients saw to one JSON object."""
    good = [answer for answer in answers if answer.error is None]
    ttft = [(answer.piece_times[0] - answer.started_at) * 1000 for answer in good if answer.piece_times]
    itl = [
        (later - earlier) * 1000
        for answer in good
        for earlier, later in zip(answer.piece_times, answer.piece_times[1:], strict=False)
    ]
    return {
        "protocol": options.protocol,
        "concurrency": options.concurrency,
        "requests": len(answers),
        "prompt_tokens": options.prompt_tokens,
        "prompt_tokens_counted": sorted({answer.prompt_tokens for answer in good} - {None}),
        "output_tokens": options.output_tokens,
        "completion_tokens": sum(answer.completion_tokens for answer in good),
        "elapsed_s": elapsed_s,
        "tokens_per_second": sum(answer.completion_tokens for answer in good) / elapsed_s,
        "requests_per_second": len(good) / elapsed_s,
        "ttft_ms": percentiles(ttft),
        "itl_ms": percentiles(itl),
        "errors": len(answers) - len(good),
        "first_errors": [answer.error for answer in answers if answer.error][:3],
    }


def percentiles(values: list[float]) -> dict[str, float | None]:
    """Median and 99th of a hundred."""
    if not values:
        return {"p50": None, "p99": None}
    ordered = sorted(values)
    last = len(ordered) - 1
    return {"p50": ordered[round(last * 0.5)], "p99": ordered[round(last * 0.99)]}


@contextlib.contextmanager
def self_hosted(arguments: list[str]) -> Iterator[str]:
    """Pagurid on a free port until the block ends."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "server.log"
        command = [sys.executable, "-m", "pagurid.cli", "serve", "--port", "0", *arguments]
        with log.open("wb") as output:
            process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        try:
            deadline = time.monotonic() + START_WITHIN_S
            while (said := re.search(r"listening at (http://\S+)", log.read_text())) is None:
                if process.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit(f"the server did not start:\n{log.read_text()}")
                time.sleep(0.1)
            yield said[1]
        finally:
            process.terminate()
            process.wait(timeout=20)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--url", help="the server; its root, without /v1")
    parser.add_argument("--self-hosted", action="store_true", help="start Pagurid for the run")
    parser.add_argument("--serve-args", default="", help="with --self-hosted: flags for `pagurid serve`")
    parser.add_argument("--protocol", choices=["openai", "ws"], default="openai")
    parser.add_argument("--model", help="the model's name; the server's first by default")
    parser.add_argument("--concurrency", type=int, default=8)
    parser.add_argument("--requests", type=int, help="in all; one per client by default")
    parser.add_argument("--prompt-tokens", type=int, default=128)
    parser.add_argument("--output-tokens", type=int, default=128)
    parser.add_argument("--words", type=Path, help="JSON: words that are a token each; prompts are text then")
    parser.add_argument(
        "--body", type=json.loads, default={}, help="JSON: further fields; null takes one out"
    )
    parser.add_argument("--seed", type=int, help="of the prompts; another one each run by default")
    parser.add_argument("--json", type=Path, help="write the figures to this file, too")
    options = parser.parse_args()
    if (options.url is not None) == options.self_hosted:
        parser.error("give either --url or --self-hosted")
    if options.self_hosted:
        with self_hosted(options.serve_args.split()) as url:
            result = asyncio.run(load(options, url))
    else:
        result = asyncio.run(load(options, options.url.rstrip("/")))
    for name, value in result.items():
        print(f"{name:>20}  {value}")
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")
    if result["errors"]:
        sys.exit(1)


if __name__ == "__main__":
    main()
