"""Pid 1 of a container: no new privileges, the system call filter, then the program as a child, and its watchdog.

``python3 -I -S launch.py <filter file> <seconds> <program and arguments>``; standard library only.

Everything in the container runs under the filter: a process without it, of the same user, could be made to do what the
program may not, through its ``/proc/<pid>/mem``. Being pid 1 it can't be killed or stopped from inside, and its end,
at the program's or after ``seconds``, ends all that is left.
"""

import ctypes
import os
import signal
import sys
import time

PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 4, 38, 22, 2


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
    # Nobody reads or writes our memory; the child's is its own again when it becomes the program.
    if libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "dumpable")
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    child = os.fork()
    if child == 0:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
        os.write(1, b"\x01MLRL-START\n")
        os.execv(sys.argv[3], sys.argv[3:])
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # which for pid 1 means: ignored
    null = os.open("/dev/null", os.O_RDWR)
    for descriptor in range(3):
        os.dup2(null, descriptor)
    os._exit(watch(child, time.monotonic() + float(sys.argv[2])))


def watch(child: int, end: float) -> int:
    """Reap whatever loses its parent until ``child`` ends; returns its exit code (128 + n for signal n)."""
    while True:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code
        if pid == 0:
            left = end - time.monotonic()
            if left <= 0:
                return 137
            signal.sigtimedwait({signal.SIGCHLD}, left)


main()
