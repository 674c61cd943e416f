"""The public data of a run: readable by the sandbox's user, and provably unchanged afterwards."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import threading
from pathlib import Path

from mlrl_core.errors import InfraError, MlrlError


class InputFolders:
    """Prepares input folders for a user who owns nothing; one copy per source folder, made only where needed."""

    def __init__(self, copies: Path, foreign_user: bool) -> None:
        self._copies, self._foreign = copies, foreign_user
        self._lock = threading.Lock()
        self._ready: dict[tuple[str, str], Path] = {}

    def prepare(self, inputs: Path) -> tuple[Path, str]:
        """The folder to mount and the fingerprint of its content.

        Raises MlrlError when ``inputs`` is no readable folder.
        """
        try:
            source = inputs.resolve(strict=True)
            if not source.is_dir():
                raise NotADirectoryError(20, "not a folder")
            mark, readable = _examine(source)
        except OSError as error:
            raise MlrlError(f"inputs {inputs}: {error.strerror}; give a folder with the public data") from None
        if readable or not self._foreign:
            return source, mark
        with self._lock:
            copy = self._ready.get((str(source), mark))
            if copy is None:
                copy = self._copy(source, mark)
                self._ready[str(source), mark] = copy
        return copy, _examine(copy)[0]

    def check_unchanged(self, folder: Path, mark: str) -> None:
        """Raises InfraError when anything below ``folder`` is not as it was."""
        try:
            now = _examine(folder)[0]
        except OSError as error:
            raise InfraError(f"the inputs {folder} can't be read any more: {error.strerror}") from error
        if now != mark:
            raise InfraError(f"the inputs {folder} changed during a run: run it again with folders nobody writes to")

    def _copy(self, source: Path, mark: str) -> Path:
        copy = self._copies / mark[:24]
        try:
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(source, copy, symlinks=True)
            for folder, _, files in os.walk(copy):
                os.chmod(folder, 0o755)
                for name in files:
                    path = os.path.join(folder, name)
                    if not os.path.islink(path):
                        os.chmod(path, 0o644)
        except (OSError, shutil.Error) as error:
            raise InfraError(f"can't copy the inputs {source} to where the sandbox's user can read: {error}") from error
        return copy


def _examine(folder: Path) -> tuple[str, bool]:
    """(fingerprint of every entry's name, kind, size, times and inode; whether everybody can read it all).

    The change time can't be set by a program, so an equal fingerprint means equal content.
    """
    digest, readable = hashlib.sha256(), True
    pending = [(str(folder), folder.stat())]
    while pending:
        path, found = pending.pop()
        is_folder = stat.S_ISDIR(found.st_mode)
        digest.update(
            f"{path}\0{found.st_mode}\0{found.st_size}\0{found.st_mtime_ns}\0{found.st_ctime_ns}\0{found.st_ino}\n".encode(
                "utf-8", "surrogateescape"
            )
        )
        needed = 0o005 if is_folder else 0o004
        if not stat.S_ISLNK(found.st_mode):
            readable &= found.st_mode & needed == needed
        if is_folder:
            with os.scandir(path) as entries:
                pending += sorted((entry.path, entry.stat(follow_symlinks=False)) for entry in entries)
    return digest.hexdigest(), readable
