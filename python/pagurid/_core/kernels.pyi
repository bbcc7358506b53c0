"""Raw entry points of the CPU kernels, called by `pagurid.ops` only.

An address is the `data_ptr()` of a contiguous tensor of the named shape and type that stays alive during the
call; a wrong one is undefined behaviour. Values inside index tensors are checked (ValueError); a panic is a
RuntimeError.
"""

from typing import Literal, final

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

def set_num_threads(num_threads: int, /) -> None:
    """Threads of the kernels; once, before their first use."""

def num_threads() -> int:
    """Threads that the kernels use: the cores of this process if nothing was set."""

def isa() -> str:
    """The instruction set in use: "avx512", "avx2" or "portable"; `PAGURID_CPU_ISA` forces it."""

@final
class QuantizedWeight:
    """Matrices of one width as GGUF blocks, their outputs side by side, and a bias; packed when it is made.

    A part is (GGUF type, address of its blocks, their bytes, outputs, the file's row for each row or None);
    `bias` is the address of float32 `[outputs]`. Blocks and bias are copied.
    """

    def __new__(
        cls,
        parts: list[tuple[str, int, int, int, list[int] | None]],
        in_features: int,
        activations: Literal["int8", "int16"],
        bias: int | None = None,
    ) -> QuantizedWeight: ...
    @property
    def shape(self) -> tuple[int, int]:
        """(outputs, in_features)"""

    @property
    def nbytes(self) -> int:
        """Memory of the packed weights."""

    @property
    def types(self) -> list[str]:
        """GGUF type of each part."""

    @property
    def activations(self) -> Literal["int8", "int16"]:
        """What activations are rounded to."""

    def multiply(self, x: int, out: int, rows: int, /) -> None:
        """out [rows, outputs] = x [rows, in_features] times the weights transposed, plus the bias."""

    def read_rows(self, indices: int, out: int, rows: int, /) -> None:
        """out [rows, in_features] = rows `indices` [rows] (int32) in float32, without the bias."""

@final
class TapeRecorder:
    """Records a step: a method for each op, which returns the number of its result.

    Tensors are contiguous and stay alive with the tape; the ops' index tensors are always the step's own.
    ValueError says which widths or rows don't fit.
    """

    def __new__(cls) -> TapeRecorder: ...
    def embedding(self, weight: Tensor | QuantizedWeight, /) -> int: ...
    def take_logits_rows(self, x: int, /) -> int: ...
    def linear(self, x: int, weight: Tensor | QuantizedWeight, /) -> int: ...
    def add_bias(self, x: int, bias: Tensor, /) -> None: ...
    def rms_norm(self, x: int, weight: Tensor, eps: float, /) -> int: ...
    def add_rms_norm(self, x: int, residual: int, weight: Tensor, eps: float, /) -> int: ...
    def norm_heads(
        self, qkv: int, q_weight: Tensor, k_weight: Tensor, num_heads: int, num_kv_heads: int, eps: float, /
    ) -> None: ...
    def silu_mul(self, gate_up: int, /) -> int: ...
    def rope_kv_write(
        self, qkv: int, cos_sin: Tensor, k_cache: Tensor, v_cache: Tensor, num_heads: int, /
    ) -> int: ...
    def paged_attention(
        self, q: int, k_cache: Tensor, v_cache: Tensor, num_heads: int, scale: float, /
    ) -> int: ...
    def finish(self, logits: int, /) -> Tape:
        """The tape; the recorder is empty afterwards."""

@final
class Tape:
    """A recorded step, played by one thread at a time."""

    def play(
        self,
        *,
        token_ids: NDArray[np.int32],
        positions: NDArray[np.int32],
        slot_mapping: NDArray[np.int64],
        query_start: NDArray[np.int32],
        context_lens: NDArray[np.int32],
        block_tables: NDArray[np.int32],
        logits_rows: NDArray[np.int32],
    ) -> NDArray[np.float32]:
        """The logits [R, vocab_size] of one step, whose numbers are as in `StepInputs`."""

def take_rows(
    x: int,
    indices: int,
    out: int,
    rows: int,
    width: int,
    len: int,
    dtype: Literal["float32", "float16", "bfloat16"],
    /,
) -> None: ...
def linear(
    x: int,
    weight: int,
    out: int,
    rows: int,
    in_features: int,
    out_features: int,
    dtype: Literal["float32", "float16", "bfloat16"],
    /,
) -> None: ...
def rms_norm(x: int, weight: int, out: int, rows: int, width: int, eps: float, /) -> None: ...
def add_rms_norm(
    x: int, residual: int, weight: int, out: int, rows: int, width: int, eps: float, /
) -> None: ...
def add_bias(x: int, bias: int, rows: int, width: int, /) -> None: ...
def norm_heads(
    qkv: int,
    q_weight: int,
    k_weight: int,
    rows: int,
    num_heads: int,
    num_kv_heads: int,
    head_dim: int,
    eps: float,
    /,
) -> None: ...
def silu_mul(gate_up: int, out: int, rows: int, width: int, /) -> None: ...
def rope_kv_write(
    qkv: int,
    cos_sin: int,
    positions: int,
    slot_mapping: int,
    k_cache: int,
    v_cache: int,
    q: int,
    rows: int,
    max_positions: int,
    num_heads: int,
    num_blocks: int,
    kv_heads: int,
    head_dim: int,
    block_size: int,
    /,
) -> None: ...
def paged_attention(
    q: int,
    k_cache: int,
    v_cache: int,
    query_start: int,
    context_lens: int,
    block_tables: int,
    out: int,
    rows: int,
    num_heads: int,
    sequences: int,
    max_blocks: int,
    num_blocks: int,
    kv_heads: int,
    head_dim: int,
    block_size: int,
    scale: float,
    /,
) -> None: ...
