"""Starts the program inside a container: no new privileges, the system call filter, the start line, then exec.

``python3 -I -S launch.py <filter file> <program and arguments>``; standard library only.
"""

import ctypes
import os
import sys

PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2


class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]


def main() -> None:
    with open(sys.argv[1], "rb") as file:
        code = file.read()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "no_new_privs")
    program = Program(len(code) // 8, code)
    if libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "seccomp")
    os.write(1, b"\x01MLRL-START\n")
    os.execv(sys.argv[2], sys.argv[2:])


main()
