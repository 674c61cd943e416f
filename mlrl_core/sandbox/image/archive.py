"""A root file system as an image archive that an engine loads: the same bytes give the same image id."""

from __future__ import annotations

import hashlib
import json
import subprocess
import tarfile
from io import BytesIO
from pathlib import Path

from mlrl_core.errors import InfraError

_EPOCH = "1970-01-01T00:00:00Z"


def write_archive(root: Path, archive: Path, tag: str, labels: dict[str, str]) -> str:
    """Pack ``root`` as the one layer of an image ``tag`` into ``archive``; returns the image id (``sha256:...``).

    Names sorted, times clamped, owners numeric. Raises InfraError when tar fails.
    """
    layer = archive.with_suffix(".layer")
    command = ["tar", "--sort=name", "--mtime=@0", "--numeric-owner", "--one-file-system", "-C", str(root)]
    done = subprocess.run([*command, "-cf", str(layer), "."], capture_output=True, text=True)
    if done.returncode != 0:
        raise InfraError(f"packing the image failed: {done.stderr.strip().splitlines()[-1]}")
    with layer.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "created": _EPOCH,
            "config": {"Env": ["PATH=/usr/local/bin:/usr/bin:/bin"], "Cmd": ["python3"], "Labels": labels},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
            "history": [{"created": _EPOCH, "created_by": "mlrl sandbox build"}],
        },
        sort_keys=True,
    ).encode()
    image_id = hashlib.sha256(config).hexdigest()
    manifest = json.dumps([{"Config": f"{image_id}.json", "RepoTags": [tag], "Layers": ["layer.tar"]}]).encode()
    partial = archive.with_suffix(".partial")
    with tarfile.open(partial, "w") as tar:
        for name, data in ((f"{image_id}.json", config), ("manifest.json", manifest)):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, BytesIO(data))
        tar.add(layer, "layer.tar")
    layer.unlink()
    partial.replace(archive)
    return f"sha256:{image_id}"


def image_id(archive: Path) -> str:
    """The id that the image of ``archive`` has in every engine."""
    with tarfile.open(archive) as tar:
        file = tar.extractfile("manifest.json")
        manifest = json.loads(file.read()) if file else [{"Config": ""}]
    return "sha256:" + str(manifest[0]["Config"]).removesuffix(".json")
