"""Evaluates a classic BPF filter the way the kernel does, for the tests of the system call filter."""

from __future__ import annotations

import struct

X86_64 = 0xC000003E


def evaluate(program: bytes, number: int, args: tuple[int, ...] = (), arch: int = X86_64) -> int:
    """The filter's return value for one system call."""
    data = struct.pack("<IIQ6Q", number, arch, 0, *(*args, 0, 0, 0, 0, 0, 0)[:6])
    code = [struct.unpack_from("<HBBI", program, offset) for offset in range(0, len(program), 8)]
    accumulator, position = 0, 0
    while True:
        operation, if_true, if_false, value = code[position]
        position += 1
        if operation == 0x20:  # load a word of the call's data
            accumulator = struct.unpack_from("<I", data, value)[0]
        elif operation in (0x15, 0x35, 0x45):
            holds = {
                0x15: accumulator == value,
                0x35: accumulator >= value,
                0x45: bool(accumulator & value),
            }[operation]
            position += if_true if holds else if_false
        elif operation == 0x06:
            return value
        else:
            raise AssertionError(f"unknown instruction {operation:#x}")
