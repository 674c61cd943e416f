"""The system call filter: one classic BPF program for every backend that can install it.

A deny list that is stacked on what the backend already refuses (filters combine to the strictest). Checks in order:
another architecture is killed; x32 and ``clone3`` answer ENOSYS (the C library then falls back to ``clone``, whose
flags a filter can see; EPERM there would break every thread); the deny list answers EPERM; ``clone`` with a namespace
flag EPERM; ``socket`` of another family than unix, inet, inet6, netlink EAFNOSUPPORT; all else is allowed.
"""

from __future__ import annotations

import errno
import platform
import struct

from mlrl_core.errors import MlrlError

# Numbers of arch/x86/entry/syscalls/syscall_64.tbl. Another architecture needs a table of its own.
_X86_64: dict[str, int] = {
    "ptrace": 101,
    "process_vm_readv": 310,
    "process_vm_writev": 311,
    "kcmp": 312,
    "process_madvise": 440,
    "pidfd_getfd": 438,
    "io_uring_setup": 425,
    "io_uring_enter": 426,
    "io_uring_register": 427,
    "userfaultfd": 323,
    "keyctl": 250,
    "add_key": 248,
    "request_key": 249,
    "bpf": 321,
    "perf_event_open": 298,
    "unshare": 272,
    "setns": 308,
    "mount": 165,
    "umount2": 166,
    "pivot_root": 155,
    "chroot": 161,
    "open_tree": 428,
    "move_mount": 429,
    "fsopen": 430,
    "fsconfig": 431,
    "fsmount": 432,
    "fspick": 433,
    "mount_setattr": 442,
    # Nobody becomes somebody else. A user namespace would answer EINVAL for a user that it does not map.
    "setuid": 105,
    "setgid": 106,
    "setreuid": 113,
    "setregid": 114,
    "setgroups": 116,
    "setresuid": 117,
    "setresgid": 119,
    "setfsuid": 122,
    "setfsgid": 123,
    "kexec_load": 246,
    "kexec_file_load": 320,
    "init_module": 175,
    "finit_module": 313,
    "delete_module": 176,
    "reboot": 169,
    "swapon": 167,
    "swapoff": 168,
    "sethostname": 170,
    "setdomainname": 171,
    "settimeofday": 164,
    "clock_settime": 227,
    "clock_adjtime": 305,
    "adjtimex": 159,
    "acct": 163,
    "quotactl": 179,
    "quotactl_fd": 443,
    "syslog": 103,
    "open_by_handle_at": 304,
    "name_to_handle_at": 303,
    "personality": 135,
    "iopl": 172,
    "ioperm": 173,
    "modify_ldt": 154,
    "vhangup": 153,
    "lookup_dcookie": 212,
    "fanotify_init": 300,
    "memfd_secret": 447,
    "move_pages": 279,
}
_CLONE, _CLONE3, _SOCKET = 56, 435, 41
_AUDIT_ARCH_X86_64 = 0xC000003E
_X32_BIT = 0x40000000
_NAMESPACE_FLAGS = 0x7E020000  # CLONE_NEW{NS,CGROUP,UTS,IPC,USER,PID,NET}
_FAMILIES = (1, 2, 10, 16)  # unix, inet, inet6, netlink

_LOAD, _JUMP_EQUAL, _JUMP_AT_LEAST, _JUMP_ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_KILL_PROCESS, _ERRNO, _ALLOW = 0x80000000, 0x00050000, 0x7FFF0000
_NUMBER_OFFSET, _ARCH_OFFSET, _ARG0_OFFSET = 0, 4, 16  # of struct seccomp_data


def filter_bytes() -> bytes:
    """The filter as an array of ``struct sock_filter`` (8 bytes each), for ``seccomp(2)`` and ``bwrap --seccomp``.

    Raises MlrlError on an architecture without a table.
    """
    if platform.machine() != "x86_64":
        raise MlrlError(f"the sandbox has no system call filter for {platform.machine()}: run it on x86_64")
    program: list[tuple[int, int, int, int]] = []

    def refuse_if(jump: int, value: int, number: int) -> None:
        """Answer with error ``number`` when the comparison of the accumulator with ``value`` holds."""
        program.append((jump, 0, 1, value))
        program.append((_RETURN, 0, 0, _ERRNO | number))

    program.append((_LOAD, 0, 0, _ARCH_OFFSET))
    program.append((_JUMP_EQUAL, 1, 0, _AUDIT_ARCH_X86_64))
    program.append((_RETURN, 0, 0, _KILL_PROCESS))
    program.append((_LOAD, 0, 0, _NUMBER_OFFSET))
    refuse_if(_JUMP_AT_LEAST, _X32_BIT, errno.ENOSYS)
    refuse_if(_JUMP_EQUAL, _CLONE3, errno.ENOSYS)
    for number in sorted(_X86_64.values()):
        refuse_if(_JUMP_EQUAL, number, errno.EPERM)
    # clone: 3 instructions below; otherwise on to socket.
    program.append((_JUMP_EQUAL, 0, 3, _CLONE))
    program.append((_LOAD, 0, 0, _ARG0_OFFSET))
    refuse_if(_JUMP_ANY_BIT, _NAMESPACE_FLAGS, errno.EPERM)
    # socket: load the number again, the check of clone may have replaced it.
    program.append((_LOAD, 0, 0, _NUMBER_OFFSET))
    program.append((_JUMP_EQUAL, 0, len(_FAMILIES) + 2, _SOCKET))
    program.append((_LOAD, 0, 0, _ARG0_OFFSET))
    for index, family in enumerate(_FAMILIES):
        program.append((_JUMP_EQUAL, len(_FAMILIES) - index, 0, family))
    program.append((_RETURN, 0, 0, _ERRNO | errno.EAFNOSUPPORT))
    program.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("HBBI", *instruction) for instruction in program)
