"""Recording a forward pass: the ops write down which Rust kernels to run, and compute nothing.

Owns: the way from the tensors that pass through `forward` to the numbers of values on a tape. They are meta
tensors: shapes without memory.
Invariant: what is recorded is all that the pass does. An op that isn't ours, or one on a tensor that did not
come out of another op, ends the recording with `CannotRecord`: such a model is computed op by op.
Must not know: which model it is.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import fields
from typing import TYPE_CHECKING

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from pagurid._core.kernels import TapeRecorder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

    from torch import Tensor

    from pagurid._core.kernels import QuantizedWeight, Tape
    from pagurid.models.step_inputs import StepInputs

__all__ = ["CannotRecord", "record", "recorder"]


class CannotRecord(Exception):
    """The forward pass does something that a tape can't hold; says what."""


class _Recorder:
    """The ops as methods, with the signatures of the other implementations."""

    def __init__(self, inputs: StepInputs) -> None:
        self._inputs = inputs
        self._tape = TapeRecorder()
        # Holds every tensor it has given out, so that no id is used twice.
        self._values: dict[int, tuple[Tensor, int]] = {}

    def finish(self, logits: Tensor) -> Tape:
        return self._tape.finish(self._value(logits))

    def embedding(self, indices: Tensor, weight: Tensor | QuantizedWeight) -> Tensor:
        self._require_input("token_ids", indices)
        return self._made(self._tape.embedding(weight), indices, weight.shape[1])

    def take_rows(self, x: Tensor, indices: Tensor) -> Tensor:
        self._require_input("logits_rows", indices)
        return self._made(self._tape.take_logits_rows(self._value(x)), indices, x.shape[1])

    def linear(self, x: Tensor, weight: Tensor | QuantizedWeight) -> Tensor:
        return self._made(self._tape.linear(self._value(x), weight), x, weight.shape[0])

    quantized_linear = linear

    def add_bias(self, x: Tensor, bias: Tensor) -> None:
        self._tape.add_bias(self._value(x), bias)

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        return self._made(self._tape.rms_norm(self._value(x), weight, eps), x, x.shape[1])

    def add_rms_norm(self, x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> Tensor:
        number = self._tape.add_rms_norm(self._value(x), self._value(residual), weight, eps)
        return self._made(number, x, x.shape[1])

    def norm_heads(
        self, qkv: Tensor, q_weight: Tensor, k_weight: Tensor, num_heads: int, num_kv_heads: int, eps: float
    ) -> None:
        self._tape.norm_heads(self._value(qkv), q_weight, k_weight, num_heads, num_kv_heads, eps)

    def silu_mul(self, gate_up: Tensor) -> Tensor:
        return self._made(self._tape.silu_mul(self._value(gate_up)), gate_up, gate_up.shape[1] // 2)

    def rope_kv_write(
        self,
        qkv: Tensor,
        cos_sin: Tensor,
        positions: Tensor,
        slot_mapping: Tensor,
        k_cache: Tensor,
        v_cache: Tensor,
        num_heads: int,
        num_kv_heads: int,
    ) -> Tensor:
        self._require_input("positions", positions)
        self._require_input("slot_mapping", slot_mapping)
        number = self._tape.rope_kv_write(self._value(qkv), cos_sin, k_cache, v_cache, num_heads)
        return self._made(number, qkv, num_heads, cos_sin.shape[1])

    def paged_attention(
        self,
        q: Tensor,
        k_cache: Tensor,
        v_cache: Tensor,
        query_start: Tensor,
        context_lens: Tensor,
        block_tables: Tensor,
        scale: float,
    ) -> Tensor:
        self._require_input("query_start", query_start)
        self._require_input("context_lens", context_lens)
        self._require_input("block_tables", block_tables)
        _, num_heads, head_dim = q.shape
        number = self._tape.paged_attention(self._value(q), k_cache, v_cache, num_heads, scale)
        return self._made(number, q, num_heads * head_dim)

    def _made(self, number: int, rows_of: Tensor, *shape: int) -> Tensor:
        """A new value with as many rows as `rows_of`."""
        tensor = torch.empty((rows_of.shape[0], *shape), device="meta")
        self._values[id(tensor)] = (tensor, number)
        return tensor

    def _value(self, tensor: Tensor) -> int:
        if (found := self._values.get(id(tensor))) is None:
            raise CannotRecord("an op was given a tensor that no other op has made")
        return found[1]

    def _require_input(self, name: str, tensor: Tensor) -> None:
        if tensor is not getattr(self._inputs, name):
            raise CannotRecord(f"an op was given other {name} than the step's own")


_current: ContextVar[_Recorder | None] = ContextVar("recorder", default=None)


def recorder() -> _Recorder | None:
    """What records in this thread now."""
    return _current.get()


class _OursAlone(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Lets nothing pass that would not be on the tape."""

    def __torch_dispatch__(
        self,
        func: Any,  # an OpOverload: torch's own signature says less
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        # Memory without content is what `_made` gives; from elsewhere it would be refused by the next op.
        if func.namespace != "pagurid" and func is not torch.ops.aten.empty.memory_format:
            raise CannotRecord(f"the forward pass calls {func}, which is not one of pagurid's ops")
        return func(*args, **(kwargs or {}))


def record(forward: Callable[[StepInputs], Tensor], inputs: StepInputs) -> Tape:
    """What `forward` does, as a tape. `inputs` are meta tensors; their sizes don't matter.

    Raises CannotRecord.
    """
    for field in fields(inputs):
        if not getattr(inputs, field.name).is_meta:
            raise ValueError(f"{field.name} must be a meta tensor")
    with _recording(_Recorder(inputs)) as recording, _OursAlone():  # type: ignore[no-untyped-call]
        return recording.finish(forward(inputs))


@contextmanager
def _recording(new: _Recorder) -> Iterator[_Recorder]:
    token = _current.set(new)
    try:
        yield new
    finally:
        _current.reset(token)
