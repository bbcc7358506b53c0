"""Raw entry points of the CPU kernels, called by `pagurid.ops` only.

An address is the `data_ptr()` of a contiguous tensor of the named shape and type that stays alive during the
call; a wrong one is undefined behaviour. Values inside index tensors are checked (ValueError); a panic is a
RuntimeError.
"""

from typing import Literal, final

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

def linear(x: int, weight: int, out: int, rows: int, in_features: int, out_features: int, /) -> None: ...
def rms_norm(x: int, weight: int, out: int, rows: int, width: int, eps: float, /) -> None: ...
def add_rms_norm(
    x: int, residual: int, weight: int, out: int, rows: int, width: int, eps: float, /
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
