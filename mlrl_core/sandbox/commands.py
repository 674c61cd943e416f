"""``mlrl sandbox build | run | check | sweep``: a Typer application that the main command mounts.

Part of the command line, not of the leaf: it may look into competitions (what to mask) and instrumentation.
"""

from __future__ import annotations

import dataclasses
import json
import secrets
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from mlrl_core.errors import InfraError, MlrlError

app = typer.Typer(help="Run programs in the sandbox; build, check and clean it.", no_args_is_help=True)

_Set = Annotated[list[str] | None, typer.Option("--set", help="Configuration, e.g. sandbox.pids=64; repeatable.")]
_Backend = Annotated[str | None, typer.Option(help="auto, docker, bubblewrap or process.")]
_Json = Annotated[bool, typer.Option("--json", help="For programs: one JSON object.")]


def _config(backend: str | None, overrides: list[str]) -> Any:
    from mlrl_core.config import load_config

    if backend is not None:
        overrides = [*overrides, f"sandbox.backend={backend}"]
    return load_config("default", overrides).sandbox


@app.command()
def build(
    flavour: Annotated[str, typer.Argument(help="cpu, or full (adds torch, transformers and more).")] = "cpu",
    engine: Annotated[str, typer.Option(help="URL of the engine; default: $DOCKER_HOST or the usual socket.")] = "",
    pip_arg: Annotated[list[str] | None, typer.Option(help="Passed to pip, e.g. an index; repeatable.")] = None,
    load: Annotated[bool, typer.Option(help="Load the image into the engine.")] = True,
) -> None:
    """Build the image without a registry (needs root and debootstrap) and load it into the engine."""
    from mlrl_core.sandbox.engine import connect, engine_errors
    from mlrl_core.sandbox.image.build import build_archive, image_tag

    if flavour not in ("cpu", "full"):
        raise MlrlError(f"there is no image '{flavour}': build cpu or full")
    client = connect(engine, 1) if load else None
    archive = build_archive(flavour, typer.echo, pip_arg or [])  # type: ignore[arg-type]
    if client is None:
        typer.echo(f"next: docker load -i {archive}")
        return
    typer.echo("loading it into the engine")
    with archive.open("rb") as file, engine_errors("loading the image"):
        image = client.images.load(file)[0]
    tag = image_tag(flavour)  # type: ignore[arg-type]
    typer.echo(f"loaded {tag} ({image.id})\nnext: mlrl sandbox check --backend docker --set sandbox.image={tag}")


@app.command()
def run(
    program: Annotated[Path, typer.Argument(help="The program to run.")],
    inputs: Annotated[Path | None, typer.Option(help="Folder that the program sees as ./input.")] = None,
    backend: _Backend = None,
    time_limit: Annotated[float | None, typer.Option(help="Seconds.")] = None,
    memory_mb: Annotated[int | None, typer.Option(help="MiB.")] = None,
    overrides: _Set = None,
    env: Annotated[list[str] | None, typer.Option(help="K=V, added to the program's environment; repeatable.")] = None,
    instrument: Annotated[str, typer.Option(help="ast inserts milestone prints first, none does not.")] = "none",
    submission: Annotated[Path | None, typer.Option(help="Where to put the collected submission.")] = None,
    as_json: _Json = False,
) -> None:
    """Run one program and print what happened. Exit code 0 whatever the program did, 3 when the sandbox failed."""
    from mlrl_core.competitions import label_files
    from mlrl_core.sandbox import open_sandbox

    chosen = list(overrides or ())
    if time_limit is not None:
        chosen.append(f"sandbox.time_limit_s={time_limit}")
    if memory_mb is not None:
        chosen.append(f"sandbox.memory_mb={memory_mb}")
    variables = dict(_variable(item) for item in env or ())
    try:
        source = program.read_bytes().decode("utf-8", "surrogateescape")
    except OSError as error:
        raise MlrlError(f"{program}: {error.strerror}; name a program to run") from None
    with tempfile.TemporaryDirectory() as folder:
        data = inputs
        if data is None:
            data = Path(folder) / "inputs"
            data.mkdir()
        source, nonce, milestones = _instrumented(source, instrument)
        sandbox = open_sandbox(
            _config(backend, chosen), run_key="sandbox-run", env=variables, masked_files=label_files()
        )
        try:
            result = sandbox.run(
                source,
                data,
                collect_to=submission or Path(folder) / "submission.csv",
                nonce=nonce,
                milestones=milestones,
            )
            report = execution_report(dataclasses.asdict(result))
        except InfraError as error:
            report = _infra_report(str(error))
        finally:
            sandbox.close()
    if as_json:
        typer.echo(json.dumps(report))
    else:
        _print(report, sandbox.description)
    if report["status"] == "infra_error":
        raise typer.Exit(3)


def execution_report(execution: dict[str, Any]) -> dict[str, Any]:
    """The fixed keys of ``mlrl sandbox run --json`` from an ``Execution`` as a dictionary."""
    keys = (
        "status",
        "exit_code",
        "signal",
        "duration_s",
        "wall_s",
        "queue_s",
        "cpu_s",
        "peak_memory_mb",
        "oom_seen",
        "idle_suspect",
        "clock_suspect",
        "output_truncated",
        "output_lost",
        "stdout",
        "stderr",
        "milestones",
        "backend",
        "detail",
    )
    report = {key: execution[key] for key in keys}
    report["submission"] = {
        "state": execution["submission_state"],
        "reason": execution["submission_reason"],
        "bytes": execution["submission_bytes"],
    }
    return report


def _infra_report(detail: str) -> dict[str, Any]:
    nothing = {"head": "", "tail": "", "bytes": 0}
    return {
        **dict.fromkeys(("exit_code", "signal", "cpu_s", "peak_memory_mb", "duration_s", "wall_s", "queue_s")),
        **dict.fromkeys(("oom_seen", "idle_suspect", "clock_suspect", "output_truncated", "output_lost"), False),
        "status": "infra_error",
        "stdout": nothing,
        "stderr": nothing,
        "milestones": [],
        "backend": "",
        "detail": detail,
        "submission": {"state": "not_collected", "reason": None, "bytes": 0},
    }


def _instrumented(source: str, inserter: str) -> tuple[str, str, tuple[str, ...]]:
    """(program to run, nonce, milestones)."""
    if inserter == "none":
        return source, "", ()
    if inserter != "ast":
        raise MlrlError(f"--instrument {inserter}: choose ast or none")
    from mlrl_core.instrumentation import instrument

    program = instrument(source, "ast", secrets.token_hex(8))
    if program.fallback_reason:
        typer.echo(f"not instrumented: {program.fallback_reason}", err=True)
    return program.source, program.nonce, program.milestones


def _variable(item: str) -> tuple[str, str]:
    name, equals, value = item.partition("=")
    if not equals or not name:
        raise MlrlError(f"--env {item}: write it as NAME=value")
    return name, value


def _print(report: dict[str, Any], description: str) -> None:
    from mlrl_core.records import StreamCapture
    from mlrl_core.sandbox.output import capture_text
    from mlrl_core.sandbox.sanitise import sanitise

    for name in ("stdout", "stderr"):
        text = sanitise(capture_text(StreamCapture(**report[name]))).rstrip("\n")
        if text:
            typer.echo(f"--- {name} ({report[name]['bytes']} bytes)\n{text}")
    if report["detail"]:
        typer.echo(f"--- {report['status']}: {report['detail']}")
        return
    submission = report["submission"]
    flags = [name for name in ("oom_seen", "idle_suspect", "clock_suspect", "output_lost") if report[name]]
    cpu = "?" if report["cpu_s"] is None else f"{report['cpu_s']:.2f}"
    peak = "?" if report["peak_memory_mb"] is None else f"{report['peak_memory_mb']:.0f}"
    typer.echo(
        f"--- {report['status']}, exit code {report['exit_code']}, {report['duration_s']:.2f} s "
        f"({cpu} s of CPU), {peak} MiB at most, submission {submission['state']}"
        + (f" ({submission['reason']})" if submission["reason"] else "")
        + (f", {', '.join(flags)}" if flags else "")
    )
    typer.echo(f"    {description}")


@app.command()
def check(backend: _Backend = None, overrides: _Set = None, as_json: _Json = False) -> None:
    """Attack the sandbox with harmless canaries and say which defences hold."""
    from mlrl_core.sandbox.opening import check_backend

    description, lines = check_backend(_config(backend, list(overrides or ())))
    if as_json:
        typer.echo(json.dumps({"sandbox": description, "checks": lines}))
        return
    typer.echo(description)
    for line in lines:
        typer.echo(f"  {line}")
    typer.echo("next: mlrl sandbox run PROGRAM --inputs FOLDER")


@app.command()
def sweep(
    engine: Annotated[str, typer.Option(help="URL of the engine; default: $DOCKER_HOST or the usual socket.")] = "",
    as_json: _Json = False,
) -> None:
    """Remove containers, volumes, mounts, folders and control groups that dead workers left behind."""
    from mlrl_core.sandbox.sweep import sweep as sweep_all

    swept = sweep_all(engine)
    if as_json:
        typer.echo(json.dumps(dataclasses.asdict(swept)))
    else:
        counts = ", ".join(f"{len(names)} {kind}" for kind, names in dataclasses.asdict(swept).items())
        typer.echo(f"removed: {counts}")
        for problem in swept.problems:
            typer.echo(f"  {problem}")
    if swept.problems:
        raise typer.Exit(3)
