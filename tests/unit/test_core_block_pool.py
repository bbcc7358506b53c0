"""`_core.BlockPool` alone: references, the prefix cache, and what a wrong call gets."""

from __future__ import annotations

import pytest

from pagurid import _core
from pagurid.errors import InvalidRequest


def test_blocks_are_handed_out_shared_and_given_back() -> None:
    """free + cached + used = all blocks but block 0, at every point."""
    pool = _core.BlockPool(8, 4)
    blocks = pool.allocate(3)
    assert blocks == [1, 2, 3]
    assert (pool.num_usable_blocks, pool.num_free_blocks, pool.num_used_blocks) == (7, 4, 3)
    pool.share(blocks[:1])
    assert [pool.references(block) for block in blocks] == [2, 1, 1]
    assert pool.allocate(5) is None, "all or nothing"
    pool.free(blocks)
    assert (pool.num_free_blocks, pool.num_cached_blocks, pool.num_used_blocks) == (6, 0, 1)
    pool.free([1])
    assert pool.num_free_blocks == 7
    pool.check_invariants()


def test_block_0_is_never_handed_out() -> None:
    """Padding writes go there."""
    pool = _core.BlockPool(5, 1)
    assert pool.allocate(4) == [1, 2, 3, 4]
    assert pool.allocate() is None


def test_a_published_prefix_is_hit_again_until_it_is_evicted() -> None:
    """Whole blocks, longest prefix first; the tail of a sequence is evicted before its head."""
    pool = _core.BlockPool(6, 2)
    tokens = [1, 2, 3, 4, 5]
    blocks = pool.allocate(3)
    assert blocks is not None
    assert pool.publish(blocks, tokens) == blocks
    pool.free(blocks)
    assert (pool.num_free_blocks, pool.num_cached_blocks) == (3, 2)
    assert pool.lookup([1, 2, 3, 9]) == blocks[:1]
    assert pool.lookup(tokens) == blocks[:2]
    assert pool.lookup([2, 1]) == []
    assert pool.references(blocks[0]) == 2
    pool.free(blocks[:1])
    pool.free(blocks[:2])
    assert pool.allocate(4) is not None, "evicts one cached block"
    assert pool.lookup(tokens) == blocks[:1], "the tail went first"
    pool.check_invariants()


def test_equal_blocks_are_exchanged() -> None:
    """Two owners that computed the same prefix end up with one copy."""
    pool = _core.BlockPool(8, 2)
    first, second = pool.allocate(2), pool.allocate(2)
    assert first is not None
    assert second is not None
    pool.publish(first, [1, 2, 3, 4])
    assert pool.publish(second, [1, 2, 3, 4]) == first
    assert (pool.num_used_blocks, pool.references(first[0])) == (2, 2)
    assert pool.publish(first, [1, 2, 3, 4]) == first, "publishing again changes nothing"
    pool.free(first)
    pool.free(first)
    pool.check_invariants()
    assert pool.num_used_blocks == 0


@pytest.mark.parametrize("hash_bits", [0, 8, 128])
def test_a_collision_never_shares(hash_bits: int) -> None:
    """D17: with a constant hash, other tokens, and the same tokens under another parent, are no hit."""
    pool = _core.BlockPool(64, 16, hash_bits=hash_bits)
    tokens = list(range(32))
    blocks = pool.allocate(2)
    assert blocks is not None
    pool.publish(blocks, tokens)
    assert pool.lookup([*range(100, 116)]) == []
    assert pool.lookup([*range(100, 116), *tokens[16:]]) == []
    assert pool.lookup(tokens[16:]) == []
    assert pool.lookup(tokens) == (blocks if hash_bits else blocks[:1])


def test_without_prefix_caching_nothing_is_kept() -> None:
    """`enable_prefix_caching=False`: publish and lookup do nothing."""
    pool = _core.BlockPool(4, 2, enable_prefix_caching=False)
    blocks = pool.allocate(1)
    assert blocks is not None
    assert pool.publish(blocks, [1, 2]) == blocks
    pool.free(blocks)
    assert (pool.lookup([1, 2]), pool.num_cached_blocks) == ([], 0)


def test_wrong_calls_are_refused_and_change_nothing() -> None:
    """D20: nothing is freed twice; the message names the block."""
    pool = _core.BlockPool(4, 2)
    [block] = pool.allocate(1) or []
    pool.free([block])
    for call in (
        lambda: pool.free([block]),
        lambda: pool.share([block]),
        lambda: pool.publish([block], [1, 2]),
    ):
        with pytest.raises(InvalidRequest, match=f"block {block} has 0 owners"):
            call()
    for wrong in (0, 4):
        with pytest.raises(InvalidRequest, match=rf"must be in 1\.\.4, got {wrong}"):
            pool.references(wrong)
    blocks = pool.allocate(2)
    assert blocks is not None
    with pytest.raises(InvalidRequest, match="fewer than this call speaks for"):
        pool.free([blocks[0], blocks[0]])
    pool.publish(blocks[:1], [1, 2])
    with pytest.raises(InvalidRequest, match="published with other tokens"):
        pool.publish(blocks[:1], [3, 4])
    pool.check_invariants()


@pytest.mark.parametrize(
    ("args", "param"), [((1, 16), "num_blocks"), ((8, 0), "block_size"), ((1 << 31, 16), "num_blocks")]
)
def test_sizes_are_checked(args: tuple[int, int], param: str) -> None:
    """The error names the parameter."""
    with pytest.raises(InvalidRequest) as error:
        _core.BlockPool(*args)
    assert error.value.param == param
