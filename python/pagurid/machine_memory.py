"""How much memory this process may still take, and has taken.

Owns: reading it from the system, container limits included, which `free` does not know of.
Must not know: what the memory is for.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["available_memory_bytes", "peak_memory_bytes"]


def available_memory_bytes(root: Path = Path("/")) -> int | None:
    """Bytes, or None where the system does not tell (not Linux). `root` is for tests."""
    try:
        meminfo = (root / "proc/meminfo").read_text()
    except OSError:
        return None
    fields = dict(line.split(":", 1) for line in meminfo.splitlines() if ":" in line)
    if "MemAvailable" not in fields:
        return None
    available = int(fields["MemAvailable"].split()[0]) * 1024
    left = _left_in_container(root / "sys/fs/cgroup")
    return available if left is None else min(available, left)


def peak_memory_bytes(root: Path = Path("/")) -> int | None:
    """The most that this process had in memory at once, or None where the system does not tell.

    Not `getrusage`: it begins with the parent's peak, whoever that was.
    """
    try:
        status = (root / "proc/self/status").read_text()
    except OSError:
        return None
    for line in status.splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return None


def _left_in_container(cgroup: Path) -> int | None:
    """Limit minus use of the control group, version 2. File caches count as use but can be given up."""
    try:
        limit = int((cgroup / "memory.max").read_text())  # "max" when there is no limit
        used = int((cgroup / "memory.current").read_text())
        statistics = dict(line.split() for line in (cgroup / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):
        return None
    return max(0, limit - used + int(statistics.get("inactive_file", 0)))
