from lakepact.upkeep.recent_set import RecentSet


def test_the_last_members_stay_and_older_ones_are_forgotten() -> None:
    members: RecentSet[int] = RecentSet(100)
    for number in range(1_000):
        members.add(number)
    assert all(number in members for number in range(900, 1_000))
    assert not any(number in members for number in range(800))


def test_it_holds_at_most_twice_its_size() -> None:
    members: RecentSet[int] = RecentSet(100)
    for number in range(1_234):
        members.add(number)
    assert 100 <= sum(number in members for number in range(1_234)) <= 200
