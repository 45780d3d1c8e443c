"""How many connections a process may have, and which one goes first."""

from __future__ import annotations

import pytest

from lakepact.server.connections import Connections, backlog_within, connections_within


class FakeConnection:
    closed = False

    def close_idle(self) -> None:
        self.closed = True


def opened(connections: Connections, count: int) -> list[FakeConnection]:
    made = [FakeConnection() for _ in range(count)]
    assert all(connections.opened(one) for one in made)
    return made


def test_one_connection_too_many_closes_the_one_that_is_idle_for_longest() -> None:
    connections = Connections(3)
    first, second, third = opened(connections, 3)
    connections.busy(first)
    connections.busy(second)
    connections.idle(first)
    [fourth] = opened(connections, 1)
    assert [one.closed for one in (first, second, third, fourth)] == [False, False, True, False]
    connections.closed(third)
    opened(connections, 1)
    assert first.closed


def test_a_new_connection_is_refused_if_all_are_busy() -> None:
    counted: list[int] = []
    connections = Connections(2, on_limited=lambda: counted.append(1))
    for one in opened(connections, 2):
        connections.busy(one)
    refused = FakeConnection()
    assert not connections.opened(refused)
    connections.closed(refused)
    assert counted == [1]


@pytest.mark.parametrize("files", [16, 256, 1_024, 4_096, 1_048_576])
def test_other_files_always_have_room(files: int) -> None:
    assert files - connections_within(files) >= min(512, files // 2)
    assert connections_within(files) + backlog_within(files) < files
