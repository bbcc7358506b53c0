"""The Rust kernels against the reference in plain torch, through the ops."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
import torch

from pagurid import ops

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

# Both sides are float32: with scores larger than these tests', each is further than this from float64.
TOLERANCE = 1e-5


@pytest.fixture(autouse=True)
def seeded() -> Iterator[None]:
    torch.manual_seed(0)
    yield
    ops.select("rust")


def both(compute: Callable[[], tuple[Tensor, ...]]) -> None:
    """The same computation with both implementations gives the same, but for rounding."""
    ops.select("reference")
    expected = compute()
    ops.select("rust")
    for got, want in zip(compute(), expected, strict=True):
        assert got.shape == want.shape
        torch.testing.assert_close(got, want, atol=TOLERANCE, rtol=TOLERANCE, equal_nan=True)


@pytest.mark.parametrize(
    ("rows", "in_features", "out_features"),
    [(1, 576, 960), (16, 576, 960), (3, 7, 5), (33, 100, 1), (2, 1700, 13), (0, 4, 4), (70, 64, 130)],
)
def test_linear(rows: int, in_features: int, out_features: int) -> None:
    x, weight = torch.randn(rows, in_features), torch.randn(out_features, in_features) / in_features**0.5
    both(lambda: (ops.linear(x, weight),))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_weights_of_16_bits(dtype: torch.dtype) -> None:
    """To the bit what the widened weight gives, in either implementation."""
    x, weight = torch.randn(5, 577), (torch.randn(40, 577) / 24).to(dtype)
    indices = torch.tensor([3, 39, 0, 3], dtype=torch.int32)
    for implementation in ("rust", "reference"):
        ops.select(implementation)
        assert torch.equal(ops.linear(x, weight), ops.linear(x, weight.float()))
        rows = ops.embedding(indices, weight)
        assert rows.dtype is torch.float32
        assert torch.equal(rows, weight.float()[indices])


@pytest.mark.parametrize(("rows", "width"), [(1, 576), (5, 576), (3, 7), (200, 1536), (0, 16)])
def test_norms_and_activation(rows: int, width: int) -> None:
    x, residual, weight = torch.randn(rows, width), torch.randn(rows, width), torch.randn(width)
    both(lambda: (ops.rms_norm(x, weight, 1e-5),))

    def add() -> tuple[Tensor, ...]:
        new_residual = residual.clone()
        return ops.add_rms_norm(x, new_residual, weight, 1e-5), new_residual

    both(add)
    gate_up = torch.randn(rows, 2 * width) * 5
    both(lambda: (ops.silu_mul(gate_up),))


@pytest.mark.parametrize("rows", [0, 1, 5, 90])
def test_head_norms_bias_and_rows(rows: int) -> None:
    qkv, q_weight, k_weight = torch.randn(rows, (6 + 2 * 2) * 24), torch.randn(24), torch.randn(24)
    bias, indices = torch.randn(240), torch.randint(0, max(rows, 1), (min(rows, 3),), dtype=torch.int32)

    def changed() -> tuple[Tensor, ...]:
        x = qkv.clone()
        ops.norm_heads(x, q_weight, k_weight, 6, 2, 1e-5)
        normed = x.clone()
        ops.add_bias(x, bias)
        return normed, x, ops.take_rows(x, indices)

    both(changed)


@dataclass
class PagedCase:
    """Sequences of random lengths in a cache whose unused slots hold NaN."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    block_size: int
    context_lens: list[int]
    new_tokens: list[int]

    def __post_init__(self) -> None:
        shuffled = random.Random(0)
        widths = [-(-length // self.block_size) for length in self.context_lens]
        blocks = list(range(1, sum(widths) + 4))
        shuffled.shuffle(blocks)
        num_blocks = len(blocks) + 1
        self.k_cache = torch.full((num_blocks, self.num_kv_heads, self.head_dim, self.block_size), torch.nan)
        self.v_cache = torch.full((num_blocks, self.num_kv_heads, self.block_size, self.head_dim), torch.nan)
        tables = [[blocks.pop() for _ in range(width)] for width in widths]
        positions: list[int] = []
        slots: list[int] = []
        self.new_rows: list[int] = []
        for table, length, new in zip(tables, self.context_lens, self.new_tokens, strict=True):
            self.new_rows.extend(range(len(positions) + length - new, len(positions) + length))
            positions.extend(range(length))
            slots.extend(
                table[p // self.block_size] * self.block_size + p % self.block_size for p in range(length)
            )
        self.positions = torch.tensor(positions, dtype=torch.int32)
        self.slot_mapping = torch.tensor(slots)
        rows = len(positions)
        self.qkv = torch.randn(rows, (self.num_heads + 2 * self.num_kv_heads) * self.head_dim)
        self.cos_sin = torch.randn(max(positions) + 1, self.head_dim).clamp(-1, 1)
        starts = [0]
        for new in self.new_tokens:
            starts.append(starts[-1] + new)
        self.query_start = torch.tensor(starts, dtype=torch.int32)
        padded = [table + [0] * (max(widths) - len(table)) for table in tables]
        self.block_tables = torch.tensor(padded, dtype=torch.int32)

    def run(self) -> tuple[Tensor, ...]:
        k_cache, v_cache = self.k_cache.clone(), self.v_cache.clone()
        q = ops.rope_kv_write(
            self.qkv,
            self.cos_sin,
            self.positions,
            self.slot_mapping,
            k_cache,
            v_cache,
            self.num_heads,
            self.num_kv_heads,
        )
        out = ops.paged_attention(
            q[self.new_rows],
            k_cache,
            v_cache,
            self.query_start,
            torch.tensor(self.context_lens, dtype=torch.int32),
            self.block_tables,
            self.head_dim**-0.5,
        )
        assert not out.isnan().any(), "NaN of an unused slot got into the output"
        return q, k_cache, v_cache, out


@pytest.mark.parametrize(
    "case",
    [
        PagedCase(9, 3, 64, 16, [700, 1, 40], [1, 1, 40]),
        PagedCase(8, 1, 64, 16, [130], [130]),
        PagedCase(4, 4, 80, 16, [257, 20], [200, 3]),
        PagedCase(4, 2, 128, 32, [300], [5]),
        PagedCase(6, 1, 24, 8, [99, 128], [1, 128]),
        PagedCase(2, 2, 8, 1, [50], [50]),
        PagedCase(4, 1, 256, 16, [60], [60]),
        PagedCase(2, 1, 6, 5, [33], [1]),
        PagedCase(1, 1, 16, 16, [4000], [1]),
    ],
    ids=lambda case: f"{case.num_heads}_{case.num_kv_heads}_{case.head_dim}_{case.block_size}",
)
def test_rope_kv_write_and_paged_attention(case: PagedCase) -> None:
    both(case.run)


def test_random_paged_shapes() -> None:
    chosen = random.Random(1)
    for _ in range(25):
        num_kv_heads = chosen.randint(1, 3)
        context_lens = [chosen.randint(1, chosen.choice((20, 300))) for _ in range(chosen.randint(1, 5))]
        case = PagedCase(
            num_kv_heads * chosen.randint(1, 8),
            num_kv_heads,
            chosen.choice((16, 64, 80, 128)),
            chosen.choice((1, 8, 16, 32)),
            context_lens,
            [chosen.randint(1, length) for length in context_lens],
        )
        both(case.run)


def test_slot_minus_one_writes_nothing() -> None:
    """A row without a slot is rotated, but leaves the cache as it is."""
    case = PagedCase(2, 1, 16, 16, [20], [20])
    case.slot_mapping[3] = -1
    for name in ("reference", "rust"):
        ops.select(name)
        k_cache, v_cache = case.k_cache.clone(), case.v_cache.clone()
        ops.rope_kv_write(case.qkv, case.cos_sin, case.positions, case.slot_mapping, k_cache, v_cache, 2, 1)
        block, offset = int(case.block_tables[0, 0]), 3
        assert k_cache[block, :, :, offset].isnan().all()
        assert v_cache[block, :, offset].isnan().all()
        assert int((~v_cache.isnan()).sum()) == 19 * 16


def test_a_row_has_the_same_bits_in_any_batch() -> None:
    """Linear layers and attention of one row, alone and among others."""
    x, weight = torch.randn(40, 576), torch.randn(300, 576)
    whole = ops.linear(x, weight)
    for row in (0, 1, 17, 39):
        assert torch.equal(ops.linear(x[row : row + 1], weight)[0], whole[row])
    case = PagedCase(9, 3, 64, 16, [300], [300])
    q, k_cache, v_cache, out = case.run()
    for row in (0, 127, 128, 299):
        alone = ops.paged_attention(
            q[row : row + 1],
            k_cache,
            v_cache,
            torch.tensor([0, 1], dtype=torch.int32),
            torch.tensor([row + 1], dtype=torch.int32),
            case.block_tables,
            0.125,
        )
        assert torch.equal(alone[0], out[row])


def test_calls_from_several_threads_stay_apart() -> None:
    """Two engines in one process share the pool, not their results."""
    weight = torch.randn(300, 576)
    inputs = [torch.randn(20, 576) for _ in range(4)]
    expected = [ops.linear(x, weight) for x in inputs]

    def run(index: int) -> bool:
        return all(torch.equal(ops.linear(inputs[index], weight), expected[index]) for _ in range(50))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(run, range(4)))


def test_works_on_layer_slices_and_in_inference_mode() -> None:
    """A layer of one big cache tensor is contiguous, though not at its start."""
    with torch.inference_mode():
        case = PagedCase(2, 1, 16, 16, [20], [20])
        case.k_cache = torch.stack([torch.zeros_like(case.k_cache), case.k_cache])[1]
        both(case.run)
