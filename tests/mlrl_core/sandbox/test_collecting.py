"""Every way to leave something else than a plain file as ``submission.csv``, in every way of collecting it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from mlrl_core.sandbox import Sandbox, docker_backend
from mlrl_core.sandbox.docker_backend import DockerSandbox
from tests.mlrl_core.sandbox.conftest import PROGRAM_LIMITS, Opener
from tests.mlrl_core.sandbox.expectations import PROGRAMS, broken_promises, read_program, stretch
from tests.mlrl_core.sandbox.world import World

MODES = ["bubblewrap", "docker", "engine volume", "process"]
GOOD = "import os\nopen('good', 'w').write('id\\n1\\n')\n"
# name -> (program, what may become of it)
WAYS = {
    "plain": ("open('submission.csv', 'w').write('id\\n1\\n')", {"ok"}),
    "nothing": ("pass", {"missing"}),
    "hard link": (f"{GOOD}os.link('good', 'submission.csv')", {"refused:links"}),
    "hard link whose other name is hidden deep": (
        f"{GOOD}os.makedirs('a/b'); os.link('good', 'a/b/c'); os.rename('good', 'submission.csv')",
        {"refused:links"},
    ),
    "hard link, folder without permissions": (
        f"{GOOD}os.link('good', 'submission.csv'); os.chmod('.', 0)",
        {"refused:links", "refused:unreadable"},
    ),
    "symlink": (f"{GOOD}os.symlink('good', 'submission.csv')", {"refused:symlink"}),
    "symlink to the input": ("import os; os.symlink('input/train.csv', 'submission.csv')", {"refused:symlink"}),
    "symlink to nowhere": ("import os; os.symlink('/nowhere', 'submission.csv')", {"refused:symlink"}),
    "symlink to itself": ("import os; os.symlink('submission.csv', 'submission.csv')", {"refused:symlink"}),
    "fifo": ("import os; os.mkfifo('submission.csv')", {"refused:not_regular"}),
    "folder": ("import os; os.mkdir('submission.csv')", {"refused:not_regular"}),
    "full folder": (
        "import os; os.mkdir('submission.csv'); open('submission.csv/submission.csv', 'w').write('id\\n1\\n')",
        {"refused:not_regular"},
    ),
    "socket": (
        "import socket; socket.socket(socket.AF_UNIX).bind('submission.csv')",
        {"refused:not_regular"},
    ),
    # Where the worker is root, the unsafe backend lets a program make one.
    "device": (
        "import os, stat\ntry: os.mknod('submission.csv', 0o600 | stat.S_IFCHR, os.makedev(1, 3))\n"
        "except PermissionError: pass",
        {"missing", "refused:not_regular", "refused:unreadable"},
    ),
    "sparse": (
        "import os; open('submission.csv', 'w').close(); os.truncate('submission.csv', 20 << 20)",
        {"refused:size"},
    ),
    "one byte too long": ("open('submission.csv', 'wb').write(b'1' * ((4 << 20) + 1))", {"refused:size"}),
    # The writer dies with the run, in the middle of a write: a part of the file, never more than the cap.
    "growing": (
        "import os, time\nif os.fork() == 0:\n    os.setsid()\n    file = open('submission.csv', 'wb', 0)\n"
        "    while True: file.write(b'1' * 1000)\n"
        "while not os.path.exists('submission.csv') or os.path.getsize('submission.csv') < 1000: time.sleep(0.01)",
        {"ok", "refused:size"},
    ),
    "deleted but open": (
        "import os\nfile = open('submission.csv', 'wb', 0); file.write(b'id'); os.unlink('submission.csv')",
        {"missing"},
    ),
    "without permissions": (
        "import os; open('submission.csv', 'w').write('id\\n1\\n'); os.chmod('submission.csv', 0)",
        {"ok", "refused:unreadable"},
    ),
    "folder without permissions": (
        "import os; open('submission.csv', 'w').write('id\\n1\\n'); os.chmod('.', 0)",
        {"ok", "refused:unreadable"},
    ),
    "folder replaced": (
        "import os\nopen('submission.csv', 'w').write('id\\n2\\n'); out = os.getcwd()\n"
        "for call in (lambda: os.rename(out, out + '.away'), lambda: os.rmdir(out), lambda: os.symlink('..', out)):\n"
        "    try: call()\n    except OSError: pass\n"
        "try: os.mkdir(out)\nexcept OSError: pass\n"
        "try: open(out + '/submission.csv', 'w').write('id\\n1\\n')\nexcept OSError: pass",
        {"ok"},
    ),
    "folder emptied": (
        "import os, shutil\nopen('submission.csv', 'w').write('id\\n1\\n')\n"
        "shutil.rmtree(os.getcwd(), ignore_errors=True)",
        {"missing"},
    ),
    "deep tree": (
        "import os; os.makedirs('submission.csv'); os.chdir('submission.csv')\n"
        "for _ in range(3000): os.mkdir('d'); os.chdir('d')",
        {"refused:not_regular"},
    ),
    "deep tree without permissions": (
        "import os\nopen('submission.csv', 'w').write('id\\n1\\n')\n"
        "for _ in range(1500): os.mkdir('d'); os.chdir('d')\n"
        "for _ in range(1500): os.chdir('..'); os.chmod('d', 0)",
        {"ok"},
    ),
    "many odd names": (
        "import os\nfor number in range(300):\n"
        "    os.symlink('/', b'submission.csv\\n%d' % number); os.mkfifo(b'\\xff%d' % number)\n"
        "open(b'\\nsubmission.csv', 'w').close()",
        {"missing"},
    ),
    "of long ago": (
        "open('submission.csv', 'w').write('id\\n1\\n'); import os; os.utime('submission.csv', (-9**9, -9**9))",
        {"ok"},
    ),
    "of a far future": (
        "open('submission.csv', 'w').write('id\\n1\\n'); import os; os.utime('submission.csv', (9**17, 9**17))",
        {"ok"},
    ),
    "all modes and attributes": (
        "import os; open('submission.csv', 'w').write('id\\n1\\n'); os.chmod('submission.csv', 0o7777)\n"
        "for name in ('user.mlrl', 'security.mlrl', 'trusted.mlrl', 'system.posix_acl_access'):\n"
        "    try: os.setxattr('submission.csv', name, b'\\2\\0\\0\\0' + b'x' * 2000)\n    except OSError: pass",
        {"ok"},
    ),
    "no room left": (
        "file = open('submission.csv', 'wb', 0)\ntry:\n    while file.write(b'1' * 1000000): pass\n"
        "except OSError: pass",
        {"refused:size"},
    ),
    "name with a case or a blank": (
        "for name in ('Submission.csv', 'submission.csv ', './ submission.csv'): open(name, 'w').write('id\\n1\\n')",
        {"missing"},
    ),
}


@pytest.fixture(scope="module")
def volumes(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    """A docker sandbox of a worker that may not mount: the output is a volume of the engine, read through a holder."""
    url = request.getfixturevalue("engine")
    real = docker_backend.engine_info
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(docker_backend, "engine_info", lambda client: dataclasses.replace(real(client), local=False))
        limit = 6.0 * stretch()
        config = PROGRAM_LIMITS.model_copy(update={"backend": "docker", "engine_url": url, "time_limit_s": limit})
        sandbox = DockerSandbox(config, "volume", {})
    yield sandbox
    sandbox.close()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.usefixtures("nothing_left")
def test_only_a_plain_file_is_taken(
    mode: str, way: str, world: World, open_for_tests: Opener, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    if mode == "engine volume":
        sandbox = request.getfixturevalue("volumes")
    else:
        sandbox = open_for_tests(mode, time_limit_s=60)
    source, allowed = WAYS[way]
    result = sandbox.run(source, world.inputs, collect_to=tmp_path / "kept" / "submission.csv")
    assert (result.status, result.stderr.tail) == ("ok", "")
    state = f"refused:{result.submission_reason}" if result.submission_state == "refused" else result.submission_state
    assert state in allowed
    assert (tmp_path / "kept" / "submission.csv").exists() == (state == "ok")
    if state == "ok":
        taken = (tmp_path / "kept" / "submission.csv").read_bytes()
        assert len(taken) == result.submission_bytes <= PROGRAM_LIMITS.submission_mb << 20
        assert taken in (b"id\n1\n", b"id\n2\n") or set(taken) == set(b"1")
    if mode == "engine volume":
        labels = {"label": ["mlrl.run=volume"]}
        assert sandbox.client.api.containers(all=True, filters=labels) == []
        assert not sandbox.client.api.volumes(filters=labels)["Volumes"]


def test_engine_volume_for_workers_who_are_not_root(
    world: World, engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the right to mount, the output is a volume of the engine, read through a holder."""

    real = docker_backend.engine_info
    monkeypatch.setattr(docker_backend, "engine_info", lambda client: dataclasses.replace(real(client), local=False))
    stretched = stretch()
    limit = 2.0 * stretched
    config = PROGRAM_LIMITS.model_copy(update={"backend": "docker", "engine_url": engine, "time_limit_s": limit})
    sandbox = DockerSandbox(config, "volume", world.env)
    names = [
        "life_ok",
        "sub_hardlink",
        "sub_symlink",
        "sub_fifo",
        "sub_directory",
        "sub_big",
        "sub_pickle",
        "life_do_nothing",
    ]
    names += ["contain_disk_out", "contain_inode_out", "life_hang_after_submission", "sub_deep_tree", "sub_empty"]
    try:
        for name in names:
            program = read_program(PROGRAMS / f"{name}.py")
            result = sandbox.run(program.source, world.inputs, collect_to=tmp_path / f"{name}.csv")
            assert broken_promises(program, result, limit, stretched) == [], (name, result)
        assert (tmp_path / "life_ok.csv").read_text() == "id,y\n1,1\n2,0\n"
        labels = {"label": ["mlrl.run=volume"]}
        assert sandbox.client.api.containers(all=True, filters=labels) == []
        assert not sandbox.client.api.volumes(filters=labels)["Volumes"]
    finally:
        sandbox.close()
