"""The memory a model needs and the memory there is; the progress bar of loading."""

from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING

import pytest

from pagurid.machine_memory import available_memory_bytes, peak_memory_bytes
from pagurid.memory_size import parse_bytes
from pagurid.models import KvCache, ModelConfig
from pagurid.weights import progress
from tiny_models import TinyModel, tiny_config, tiny_weights

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    "options",
    [
        TinyModel(),
        TinyModel(tied=False, num_heads=8, num_kv_heads=1),
        TinyModel(attention_bias=True, mlp_bias=True),
        TinyModel(architecture="Qwen2ForCausalLM", attention_bias=True),
        TinyModel(architecture="Qwen3ForCausalLM", qk_norm=True),
    ],
)
def test_number_of_parameters(options: TinyModel) -> None:
    """Counted from the config, before anything is allocated: as many as the checkpoint holds."""
    config = ModelConfig.from_hf(tiny_config(options))
    assert config.num_parameters == sum(tensor.numel() for tensor in tiny_weights(options).values())


def test_bytes_of_a_block() -> None:
    """K and V of all layers: known before the pool is made, and what the pool then takes."""
    config = ModelConfig.from_hf(tiny_config(TinyModel()))
    kv_cache = KvCache(config, num_blocks=10, block_size=16)
    assert kv_cache.bytes_per_block == 2 * 2 * 2 * 16 * 16 * 4  # K and V, layers, kv heads, head_dim, slots
    assert kv_cache.k.nbytes + kv_cache.v.nbytes == 10 * kv_cache.bytes_per_block
    assert kv_cache.k.shape == (2, 10, 2, 16, 16)


def fake_system(root: Path, **files: str) -> Path:
    for name, content in files.items():
        file = root / name.replace("__", "/").replace("_dot_", ".")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    return root


def test_available_memory(tmp_path: Path) -> None:
    """The system's word, or the container's if that is less; None where nothing is known."""
    assert available_memory_bytes(tmp_path) is None
    fake_system(tmp_path, proc__meminfo="MemTotal: 2000 kB\nMemAvailable: 1000 kB\n")
    assert available_memory_bytes(tmp_path) == 1000 * 1024
    fake_system(
        tmp_path,
        sys__fs__cgroup__memory_dot_max="500000\n",
        sys__fs__cgroup__memory_dot_current="450000\n",
        sys__fs__cgroup__memory_dot_stat="anon 1\ninactive_file 30000\n",
    )
    assert available_memory_bytes(tmp_path) == 80_000
    fake_system(tmp_path, sys__fs__cgroup__memory_dot_max="max\n")
    assert available_memory_bytes(tmp_path) == 1000 * 1024


def test_peak_memory(tmp_path: Path) -> None:
    assert peak_memory_bytes(tmp_path) is None
    fake_system(tmp_path, proc__self__status="Name:\tpython\nVmHWM:\t    1234 kB\nVmRSS:\t    1000 kB\n")
    assert peak_memory_bytes(tmp_path) == 1234 * 1024


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1000", 1000),
        ("2GiB", 2 << 30),
        (" 512 mib ", 512 << 20),
        ("1.5GB", 1_500_000_000),
        ("3kB", 3000),
        ("0.5KiB", 512),
    ],
)
def test_sizes_as_people_write_them(text: str, expected: int) -> None:
    assert parse_bytes(text) == expected


@pytest.mark.parametrize("text", ["", "GiB", "2 GiBs", "-1", "1e9", "2G", "1,5GiB"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected a size such as 2GiB"):
        parse_bytes(text)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("patience_s", "shown"), [(-1.0, True), (1000.0, False)])
def test_progress_bar_shows_only_what_takes_long(
    monkeypatch: pytest.MonkeyPatch, patience_s: float, shown: bool
) -> None:
    """On a terminal, once patience is over; every item comes through either way."""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(progress, "_PATIENCE_S", patience_s)
    assert list(progress.track("abc", title="Loading tiny", weight=ord)) == ["a", "b", "c"]
    assert ("Loading tiny" in terminal.getvalue()) is shown


def test_no_progress_bar_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Logs stay clean."""
    log = io.StringIO()
    monkeypatch.setattr(sys, "stderr", log)
    monkeypatch.setattr(progress, "_PATIENCE_S", -1.0)
    assert list(progress.track([1, 2], title="Loading", weight=int)) == [1, 2]
    assert log.getvalue() == ""
