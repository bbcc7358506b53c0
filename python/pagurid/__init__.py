"""Pagurid serves large language models: prompts come in, tokens stream out.

    from pagurid import LLM, SamplingParams

    llm = LLM("smollm2")
    for output in llm.generate(["The capital of France is"], SamplingParams(max_tokens=8)):
        print(output.outputs[0].text)

`AsyncLLM` does the same inside an event loop. `pagurid._core` holds the Rust parts, usable alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pagurid._core import OutputDelta, RequestMetrics, SamplingParams, __version__
    from pagurid.async_llm import AsyncLLM, Generation
    from pagurid.config import EngineConfig
    from pagurid.errors import PaguridError
    from pagurid.llm import LLM
    from pagurid.outputs import CompletionOutput, RequestOutput
    from pagurid.request_options import RequestOptions

__all__ = [
    "LLM",
    "AsyncLLM",
    "SamplingParams",
    "EngineConfig",
    "RequestOptions",
    "Generation",
    "OutputDelta",
    "RequestOutput",
    "CompletionOutput",
    "RequestMetrics",
    "PaguridError",
    "__version__",
]

# Loaded at first use: `pagurid --help` must not wait for torch.
_HOMES = {
    "LLM": "pagurid.llm",
    "AsyncLLM": "pagurid.async_llm",
    "Generation": "pagurid.async_llm",
    "EngineConfig": "pagurid.config",
    "RequestOptions": "pagurid.request_options",
    "RequestOutput": "pagurid.outputs",
    "CompletionOutput": "pagurid.outputs",
    "PaguridError": "pagurid.errors",
    "SamplingParams": "pagurid._core",
    "OutputDelta": "pagurid._core",
    "RequestMetrics": "pagurid._core",
    "__version__": "pagurid._core",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'pagurid' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
