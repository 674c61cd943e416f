"""The resident set of this process: now, and at its peak since it was last asked to forget the peak (Linux)."""

from __future__ import annotations

from pathlib import Path


def _field(name: str) -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"/proc/self/status has no {name}")


def resident_mb() -> float:
    """Resident now; from here on the peak counts anew."""
    Path("/proc/self/clear_refs").write_text("5")
    return _field("VmRSS")


def peak_mb() -> float:
    """The highest since ``resident_mb``."""
    return _field("VmHWM")
