"""`pagurid serve`."""

from __future__ import annotations

import logging
import os
from typing import Annotated, Literal

import typer

from pagurid.cli.options import (
    CostPerHour,
    DtypeOption,
    KvBlocks,
    KvBytes,
    MaxModelLen,
    Model,
    QuantizationOption,
    Threads,
)
from pagurid.config import DEFAULT_MODEL, EngineConfig

__all__ = ["serve"]


def serve(
    model: Model = DEFAULT_MODEL,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8000,
    served_model_name: Annotated[str | None, typer.Option(help="What clients call the model.")] = None,
    max_model_len: MaxModelLen = None,
    max_num_seqs: Annotated[int, typer.Option(min=1, help="Most sequences in one step.")] = 64,
    max_num_batched_tokens: Annotated[int, typer.Option(min=1, help="Most tokens in one step.")] = 256,
    block_size: Annotated[int, typer.Option(min=1, help="Tokens per KV block.")] = 16,
    num_gpu_blocks_override: KvBlocks = None,
    kv_cache_memory_bytes: KvBytes = None,
    enable_prefix_caching: Annotated[bool, typer.Option(help="Reuse the KV of equal beginnings.")] = True,
    max_queued_requests: Annotated[int, typer.Option(min=1, help="Requests that may wait.")] = 1024,
    scheduling_policy: Annotated[
        Literal["fcfs", "priority", "fair"],
        typer.Option(help="Who is served first: by arrival, by priority with ageing, or tenants equally."),
    ] = "fcfs",
    priority_ageing_ms: Annotated[
        float, typer.Option(help="With --scheduling-policy priority: so long a wait makes up for one level.")
    ] = 10_000.0,
    step_time_target_ms: Annotated[
        float | None,
        typer.Option(help="Cut prompts so that a step with running answers takes about so long."),
    ] = None,
    max_queue_wait_ms: Annotated[
        float | None, typer.Option(help="Refuse a request that would probably wait longer.")
    ] = None,
    isolate_tenants: Annotated[
        bool, typer.Option("--isolate-tenants", help="Tenants never share computed prefixes.")
    ] = False,
    dtype: DtypeOption = "auto",
    quantization: QuantizationOption = "auto",
    kernels: Annotated[Literal["rust", "reference"], typer.Option(help="What computes.")] = "rust",
    enforce_eager: Annotated[
        bool, typer.Option("--enforce-eager", help="Compute op by op instead of playing the recorded step.")
    ] = False,
    threads: Threads = None,
    cost_per_hour: CostPerHour = None,
    api_key: Annotated[
        list[str] | None,
        typer.Option(
            help="Ask clients for this key, or one of these; repeatable, then each is a tenant. "
            "PAGURID_API_KEY keeps it out of `ps`."
        ),
    ] = None,
    allowed_hosts: Annotated[
        list[str] | None, typer.Option(help="Host names to answer to, beside loopback; repeatable.")
    ] = None,
    allowed_origins: Annotated[
        list[str] | None, typer.Option(help="Origins of other web pages that may use this; repeatable.")
    ] = None,
) -> None:
    """Serve a model: chat UI, WebSocket and OpenAI API on one port."""
    # Said before torch is imported, which takes a second: the terminal must not look dead.
    typer.echo(f"Loading {model} …", err=True)
    logging.getLogger("pagurid").setLevel(logging.INFO)
    from pagurid.server.serve import run
    from pagurid.server.settings import ServerSettings

    config = EngineConfig(
        model=model,
        served_model_name=served_model_name,
        max_model_len=max_model_len,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
        block_size=block_size,
        num_gpu_blocks_override=num_gpu_blocks_override,
        kv_cache_memory_bytes=kv_cache_memory_bytes,
        enable_prefix_caching=enable_prefix_caching,
        max_queued_requests=max_queued_requests,
        scheduling_policy=scheduling_policy,
        priority_ageing_ms=priority_ageing_ms,
        step_time_target_ms=step_time_target_ms,
        max_queue_wait_ms=max_queue_wait_ms,
        isolate_tenants=isolate_tenants,
        dtype=dtype,
        quantization=quantization,
        kernels=kernels,
        enforce_eager=enforce_eager,
        threads=threads,
        cost_per_hour=cost_per_hour,
    )
    settings = ServerSettings(
        host=host,
        port=port,
        api_keys=tuple(api_key or os.environ.get("PAGURID_API_KEY", "").split()),
        allowed_hosts=tuple(allowed_hosts or ()),
        allowed_origins=tuple(allowed_origins or ()),
    )
    run(config, settings, on_listening=_say_listening)


def _say_listening(url: str) -> None:
    typer.echo(
        f"Pagurid is listening at {url}\nChat there, or use {url}/v1 as an OpenAI base URL. Ctrl-C ends."
    )
