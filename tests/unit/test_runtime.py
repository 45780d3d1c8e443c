"""The system's randomness, handed out in pieces."""

from __future__ import annotations

import os

from lakepact.runtime import SystemRng


def test_numbers_have_the_bits_that_were_asked_for_and_do_not_come_again() -> None:
    rng = SystemRng()
    numbers = [rng.bits(74) for _ in range(2_000)]
    assert len(set(numbers)) == 2_000
    assert 73 <= max(numbers).bit_length() <= 74
    assert [rng.bits(count) >> count for count in (1, 7, 8, 9, 74, 100_000)] == [0] * 6


def test_a_forked_process_does_not_go_on_with_the_numbers_of_its_parent() -> None:
    rng = SystemRng()
    rng.bits(74)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, str(rng.bits(74)).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert int(os.read(read, 100)) != rng.bits(74)
    os.close(read)
    os.close(write)
