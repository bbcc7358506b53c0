"""Breaks the lock-free structures on purpose and checks that their loom tests notice.

Owns: how a mutant is made and run. `loom_mutants.toml` has the table: one weakened ordering, dropped fence,
re-check or tag each, with the test that must fail. A mutant that survives means that a race is not covered;
an old text that is not found (exactly once) means that the table is out of date: both fail the run. A hang
counts as noticed.

Usage: python tools/loom_mutants.py [WORD]   (only mutants whose file or test contains WORD)
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
CRATE = Path("rust") / "lockfree"
COPY = ROOT / "target" / "loom-mutants"
# Its own: cargo takes the copy and the crate for the same package.
TARGET = ROOT / "target" / "loom-mutants-build"
TEST_SECONDS = 20
BUILD_SECONDS = 300


class Mutant(NamedTuple):
    """One change that must not go unnoticed."""

    file: str
    old: str
    new: str
    test: str
    why: str


def read_table() -> list[Mutant]:
    """All mutants, in the order of the table."""
    table = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
    return [Mutant(file=f"{name}.rs", **mutant) for name, mutants in table.items() for mutant in mutants]


def run(command: list[str], *, seconds: int) -> tuple[int | None, str]:
    """Exit status (None: it hung and was ended, with its children) and output of a command in the copy."""
    flags = {"RUSTFLAGS": "--cfg loom", "LOOM_MAX_PREEMPTIONS": "3", "RUST_BACKTRACE": "0"}
    process = subprocess.Popen(
        command,
        cwd=COPY,
        env=os.environ | flags,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=seconds)
        return process.returncode, output
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return None, process.communicate()[0]


def cargo_test(*arguments: str, seconds: int) -> tuple[int | None, str]:
    """`cargo test` of the copy."""
    command = ["cargo", "test", "--quiet", "--offline", "-p", "pagurid-lockfree", "--profile", "loom"]
    return run([*command, "--target-dir", str(TARGET), "--test", "loom", *arguments], seconds=seconds)


def make_copy() -> None:
    """A workspace of its own with nothing but the crate."""
    shutil.rmtree(COPY, ignore_errors=True)
    # New times, so that nothing is taken for what an earlier run has built from a mutant.
    shutil.copytree(ROOT / CRATE, COPY / CRATE, copy_function=shutil.copyfile)
    manifest = (ROOT / "Cargo.toml").read_text()
    manifest = re.sub(r"^members = .*$", f'members = ["{CRATE.as_posix()}"]', manifest, flags=re.MULTILINE)
    manifest = re.sub(r"^\[profile\.dev\.package.*?(?=^\[|\Z)", "", manifest, flags=re.MULTILINE | re.DOTALL)
    (COPY / "Cargo.toml").write_text(manifest)
    shutil.copy(ROOT / "Cargo.lock", COPY / "Cargo.lock")


def verdict(mutant: Mutant) -> str | None:
    """What is wrong with the mutant; None if its test has noticed it."""
    original = (ROOT / CRATE / "src" / mutant.file).read_text()
    if (count := original.count(mutant.old)) != 1:
        return f"its old text occurs {count} times, not once"
    source = COPY / CRATE / "src" / mutant.file
    source.write_text(original.replace(mutant.old, mutant.new))
    try:
        status, output = cargo_test("--no-run", seconds=BUILD_SECONDS)
        if status != 0:
            return f"it does not compile:\n{output}"
        status, output = cargo_test("--", "--exact", mutant.test, seconds=TEST_SECONDS)
    finally:
        source.write_text(original)
    if status == 0:
        return "it survives" if "1 passed" in output else f"there is no test {mutant.test}"
    return None


def main() -> int:
    """Runs the mutants; gives the exit status."""
    word = sys.argv[1] if len(sys.argv) > 1 else ""
    mutants = [mutant for mutant in read_table() if word in mutant.file or word in mutant.test]
    start = time.monotonic()
    make_copy()
    status, output = cargo_test(seconds=BUILD_SECONDS)
    if status != 0:
        print(f"The tests fail without any mutant:\n{output}")
        return 1
    failures = 0
    for mutant in mutants:
        problem = verdict(mutant)
        failures += problem is not None
        mark = "noticed" if problem is None else "FAILED "
        print(f"{mark}  {mutant.file}: {mutant.why}  [{mutant.test}]", flush=True)
        if problem is not None:
            print(f"         {problem}", flush=True)
    seconds = time.monotonic() - start
    print(f"{len(mutants) - failures} of {len(mutants)} mutants noticed, in {seconds:.0f} s")
    return int(failures > 0 or not mutants)


if __name__ == "__main__":
    sys.exit(main())
