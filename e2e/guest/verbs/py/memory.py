# SPDX-License-Identifier: Apache-2.0
"""Memory with canaries around it, and what it ought to hold beside it."""

import ctypes
import functools
import mmap
import random

PAGE = 4096
CANARY = 0xa5


@functools.lru_cache(maxsize=2)
def pattern(length, seed):
    """length bytes that depend on seed alone; a longer one starts the same."""
    return random.Random(seed).randbytes((length + 3) & ~3)[:length]


class Region:
    """length bytes, offset bytes behind a page border, in a mapping that has
    at least a page of canary bytes before and behind them."""

    def __init__(self, length, offset=0):
        pages = (offset + length + PAGE - 1) // PAGE + 2
        self.map = mmap.mmap(-1, pages * PAGE)
        self.map[:] = bytes([CANARY]) * len(self.map)
        self.image = bytearray(self.map[:])
        self.start, self.length = PAGE + offset, length
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.map)) + self.start

    def _at(self, offset, length):
        if offset < 0 or offset + length > self.length:
            raise ValueError(f'{length} bytes at {offset} of a region of {self.length}')
        return slice(self.start + offset, self.start + offset + length)

    def store(self, offset, data):
        at = self._at(offset, len(data))
        self.map[at] = data
        self.image[at] = data

    def note(self, offset, data):
        """The device ought to put data there."""
        self.image[self._at(offset, len(data))] = data

    def load(self, offset, length):
        return self.map[self._at(offset, length)]

    def verify(self):
        have = self.map[:]
        if have == self.image:
            return ''
        at = next(i for i, (x, y) in enumerate(zip(have, self.image)) if x != y)
        bad = sum(x != y for x, y in zip(have, self.image))
        return (f'{bad} bytes differ, the first at {at - self.start} of {self.length}: '
                f'{have[at:at + 16].hex()} instead of {bytes(self.image[at:at + 16]).hex()}')


# lock xadd %rsi,(%rdi); mov %rsi,%rax; ret
FETCH_ADD = bytes.fromhex('f0480fc1374889f0c3')


@functools.cache
def fetch_add():
    """The processor's atomic addition: (address, n) -> what was there before."""
    code = mmap.mmap(-1, PAGE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(FETCH_ADD)
    f = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint64)(
        ctypes.addressof(ctypes.c_char.from_buffer(code)))
    f.keep = code
    return f
