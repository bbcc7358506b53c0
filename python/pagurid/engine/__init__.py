"""The engine: a model, its KV pool and the core's scheduler, stepped by one thread."""

from pagurid.engine.engine import Engine, Prompt
from pagurid.engine.engine_thread import EngineHealth, EngineThread
from pagurid.engine.memory_use import MemoryUse

__all__ = ["Engine", "EngineHealth", "EngineThread", "MemoryUse", "Prompt"]
