"""Removes what a program left in folders of this host."""

from __future__ import annotations

import contextlib
import os
import stat


def remove_tree(path: str) -> bool:
    """Remove a folder that a program filled, or whatever it put in its place; True when nothing is left.

    Of any depth and with any permissions (``shutil.rmtree`` ends at about 1,000 levels, and at a folder without
    rights); no link is followed. Nobody may write there meanwhile.
    """
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISDIR(os.lstat(path).st_mode):
            os.unlink(path)
    pending, lifted = [path], 0
    while pending:
        folder = pending.pop()
        try:
            os.chmod(folder, 0o700)
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            for entry in list(os.scandir(descriptor)):
                with contextlib.suppress(OSError):
                    if not entry.is_dir(follow_symlinks=False):
                        os.unlink(entry.name, dir_fd=descriptor)
                        continue
                    # Beside the top folder: so a path never grows, however deep the tree is.
                    os.chmod(entry.name, 0o700, dir_fd=descriptor)
                    lifted += 1
                    os.rename(entry.name, f"{path}.{lifted}", src_dir_fd=descriptor)
                    pending.append(f"{path}.{lifted}")
        finally:
            os.close(descriptor)
        with contextlib.suppress(OSError):
            os.rmdir(folder)
    return not any(os.path.lexists(f"{path}.{number}" if number else path) for number in range(lifted + 1))
