"""The limits of one run in bytes and seconds, resolved from the configuration."""

from __future__ import annotations

from dataclasses import dataclass

from mlrl_core.config.environment import SandboxConfig

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """``keep``: head and tail of each stream; ``output``: both streams together; ``fsize``: any one file."""

    time_s: float
    memory: int
    pids: int
    cpus: float
    nofile: int
    out: int
    tmp: int
    shm: int
    fsize: int
    keep: int
    output: int
    submission: int

    @classmethod
    def of(cls, config: SandboxConfig) -> Limits:
        """Temporary folder and shared memory of 0 become a quarter of the memory each: libraries share arrays
        between processes there."""
        memory = config.memory_mb * MIB
        tmp = config.tmp_mb * MIB or memory // 4
        shm = config.shm_mb * MIB or memory // 4
        out = config.out_mb * MIB
        return cls(
            time_s=config.time_limit_s,
            memory=memory,
            pids=config.pids,
            cpus=config.cpus,
            nofile=config.nofile,
            out=out,
            tmp=tmp,
            shm=shm,
            fsize=max(out, tmp, shm),
            keep=config.output_keep_kb * 1024,
            output=config.output_limit_mb * MIB,
            submission=config.submission_mb * MIB,
        )

    def for_helper(self) -> dict[str, float]:
        """What the helper sets."""
        names = ("memory", "pids", "cpus", "nofile", "out", "tmp", "shm", "fsize")
        return {name: getattr(self, name) for name in names}
