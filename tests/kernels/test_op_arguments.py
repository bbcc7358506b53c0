"""Wrong arguments get an error that says what was expected and what came."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

from pagurid import ops
from pagurid._core import kernels

K_CACHE, V_CACHE = torch.zeros(4, 1, 8, 2), torch.zeros(4, 1, 2, 8)


def int32(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (
            lambda: ops.linear(torch.zeros(2, 3), torch.zeros(4, 5)),
            ValueError,
            r"linear needs x \[T, in\] and weight \[out, in\]; got \[2, 3\] and \[4, 5\]",
        ),
        (
            lambda: ops.linear(torch.zeros(2, 3), torch.zeros(4, 3).double()),
            TypeError,
            r"weight must be torch.float32 or torch.float16 or torch.bfloat16; got torch.float64",
        ),
        (
            lambda: ops.linear(torch.zeros(2, 3).half(), torch.zeros(4, 3).half()),
            TypeError,
            r"x must be torch.float32; got torch.float16",
        ),
        (
            lambda: ops.linear(torch.zeros(2, 3).double(), torch.zeros(4, 3)),
            TypeError,
            r"x must be torch.float32; got torch.float64",
        ),
        (
            lambda: ops.linear(torch.zeros(3, 2).T, torch.zeros(4, 3)),
            ValueError,
            r"x must be contiguous; got \[2, 3\] with strides \(1, 2\)",
        ),
        (lambda: ops.linear(torch.zeros(3), torch.zeros(4, 3)), ValueError, r"2 dimensions; got \[3\]"),
        (lambda: ops.rms_norm(torch.zeros(2, 3), torch.zeros(4), 1e-5), ValueError, r"\[2, 3\] and \[4\]"),
        (
            lambda: ops.add_rms_norm(torch.zeros(2, 3), torch.zeros(1, 3), torch.zeros(3), 1e-5),
            ValueError,
            r"one shape \[T, H\]; got \[2, 3\] and \[1, 3\]",
        ),
        (lambda: ops.silu_mul(torch.zeros(2, 3)), ValueError, r"an even width; got \[2, 3\]"),
        (lambda: ops.add_bias(torch.zeros(2, 3), torch.zeros(2)), ValueError, r"got \[2, 3\] and \[2\]"),
        (
            lambda: ops.norm_heads(torch.zeros(2, 9), torch.zeros(3), torch.zeros(3), 2, 1, 1e-5),
            ValueError,
            r"\[T, \(2 \+ 2 \* 1\) \* D\] and weights \[D\]; got \[2, 9\], \[3\] and \[3\]",
        ),
        (
            lambda: ops.take_rows(torch.zeros(2, 3), torch.tensor([0, 2], dtype=torch.int32)),
            ValueError,
            r"indices must be in 0..2; got 2",
        ),
    ],
)
def test_shapes_and_types(call: object, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        call()  # type: ignore[operator]


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"qkv": torch.zeros(2, 23)}, ValueError, r"\[T, \(1 \+ 2 \* 1\) \* 8\]; got \[2, 23\]"),
        ({"num_kv_heads": 2}, ValueError, r"num_kv_heads is 2, but the cache has 1"),
        ({"cos_sin": torch.zeros(3, 6)}, ValueError, r"got \[3, 6\]"),
        ({"positions": int32(0)}, ValueError, r"for each of 2 rows; got \[1\] and \[2\]"),
        ({"positions": torch.tensor([0, 1])}, TypeError, r"positions must be torch.int32; got torch.int64"),
        ({"positions": int32(0, 3)}, ValueError, r"positions must be in 0..3; got 3 in row 1"),
        ({"slot_mapping": torch.tensor([0, 8])}, ValueError, r"slots must be in -1..8; got 8 in row 1"),
        ({"v_cache": torch.zeros(4, 1, 8, 2)}, ValueError, r"v_cache has the last two swapped"),
    ],
)
def test_rope_kv_write(change: dict[str, object], error: type[Exception], words: str) -> None:
    arguments = {
        "qkv": torch.zeros(2, 24),
        "cos_sin": torch.zeros(3, 8),
        "positions": int32(0, 1),
        "slot_mapping": torch.tensor([2, 3]),
        "k_cache": K_CACHE.clone(),
        "v_cache": V_CACHE.clone(),
        "num_heads": 1,
        "num_kv_heads": 1,
    }
    ops.rope_kv_write(**arguments)
    with pytest.raises(error, match=words):
        ops.rope_kv_write(**{**arguments, **change})


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"q": torch.zeros(2, 1, 6)}, ValueError, r"a multiple of 1 heads, 8\]"),
        ({"query_start": int32(0, 1)}, ValueError, r"from 0 to the number of rows, 2; got \[0, 1\]"),
        (
            {"query_start": int32(0, 1, 2)},
            ValueError,
            r"for context_lens \[S\] = \[1\]; got \[3\] and \[1, 2\]",
        ),
        ({"context_lens": int32(1)}, ValueError, r"in 2..=4 for its 2 rows and 2 blocks of 2; got 1"),
        ({"context_lens": int32(5)}, ValueError, r"in 2..=4 for its 2 rows and 2 blocks of 2; got 5"),
        ({"block_tables": int32(1, 4)[None]}, ValueError, r"blocks in 0..4; got 4"),
        (
            {"k_cache": torch.zeros(4, 1, 264, 2), "v_cache": torch.zeros(4, 1, 2, 264)},
            ValueError,
            r"at most 256",
        ),
    ],
)
def test_paged_attention(change: dict[str, object], error: type[Exception], words: str) -> None:
    arguments = {
        "q": torch.zeros(2, 1, 8),
        "k_cache": K_CACHE,
        "v_cache": V_CACHE,
        "query_start": int32(0, 2),
        "context_lens": int32(3),
        "block_tables": int32(1, 2)[None],
        "scale": 1.0,
    }
    ops.paged_attention(**arguments)
    with pytest.raises(error, match=words):
        ops.paged_attention(**{**arguments, **change})


def test_select() -> None:
    with pytest.raises(ValueError, match=r"kernels must be one of rust, reference; got 'cuda'"):
        ops.select("cuda")  # type: ignore[arg-type]
    ops.select("reference")
    assert ops.selected() == "reference"
    ops.select("rust")
    assert ops.selected() == "rust"


def test_threads_are_fixed_after_first_use() -> None:
    """The pool cannot change any more; asking for what it has is fine."""
    threads = kernels.num_threads()
    kernels.set_num_threads(threads)
    with pytest.raises(ValueError, match=rf"fixed at {threads} when .* got {threads + 1}"):
        kernels.set_num_threads(threads + 1)
    with pytest.raises(ValueError, match=r"in 1..=1024; got 0"):
        kernels.set_num_threads(0)


def test_a_panic_is_an_exception() -> None:
    """Only raw calls get as far as a panic: 3 query heads cannot share 2 KV heads."""
    query_start = int32(0)
    with pytest.raises(RuntimeError, match=r"a kernel panicked: assertion failed: .*num_heads"):
        kernels.paged_attention(0, 0, 0, query_start.data_ptr(), 0, 0, 0, 0, 3, 0, 0, 0, 2, 8, 16, 1.0)
    assert ops.linear(torch.ones(1, 2), torch.ones(1, 2)).item() == 2


RUN = (
    "import torch; from pagurid import ops; print(ops.linear(torch.ones(1, 20), torch.ones(2, 20)).tolist())"
)


def run(isa: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PAGURID_CPU_ISA": isa, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(
        [sys.executable, "-c", RUN], env=environment, capture_output=True, text=True, check=False
    )


def test_the_environment_forces_an_instruction_set() -> None:
    assert run("portable").stdout == "[[20.0, 20.0]]\n"
    assert "PAGURID_CPU_ISA must be one of " in run("sse9").stderr
