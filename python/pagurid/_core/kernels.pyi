"""Raw entry points of the CPU kernels, called by `pagurid.ops` only.

An address is the `data_ptr()` of a contiguous tensor of the named shape and type that stays alive during the
call; a wrong one is undefined behaviour. Values inside index tensors are checked (ValueError); a panic is a
RuntimeError.
"""

def set_num_threads(num_threads: int, /) -> None:
    """Threads of the kernels; once, before their first use."""

def num_threads() -> int:
    """Threads that the kernels use: the cores of this process if nothing was set."""

def isa() -> str:
    """The instruction set in use: "avx512", "avx2" or "portable"; `PAGURID_CPU_ISA` forces it."""

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
