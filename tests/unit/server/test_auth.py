"""Parts of authentication by themselves: who can reach us, and how often."""

from __future__ import annotations

import pytest

from lakepact.access.principal import Principal
from lakepact.errors import InvalidSetting
from lakepact.server.auth.bearer import Bearers, Recognised
from lakepact.server.auth.exposure import check_exposed, is_loopback
from lakepact.server.auth.issuer import trustworthy
from lakepact.server.auth.limits import Buckets
from lakepact.settings import Settings


class StillClock:
    now_s = 100.0

    def confirmed_ms(self) -> int:
        return self.now_ms()

    def now_ms(self) -> int:
        return int(self.now_s * 1000)

    def monotonic_s(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("nobody sleeps here")


@pytest.mark.parametrize(
    ("host", "here"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("", False),
        ("192.0.2.1", False),
        ("2001:db8::1", False),
        ("::ffff:192.0.2.1", False),
    ],
)
def test_only_this_machine_reaches_a_loopback_address(host: str, here: bool) -> None:
    assert is_loopback(host) is here


def test_a_server_that_asks_or_is_told_to_may_listen_anywhere() -> None:
    for given in ({"auth": "tokens"}, {"insecure": True}, {"host": "127.0.0.1"}):
        check_exposed(Settings.load(**{"host": "0.0.0.0", **given}))
    with pytest.raises(InvalidSetting, match="--insecure"):
        check_exposed(Settings.load(host="0.0.0.0"))


async def test_a_token_is_remembered_once_however_it_is_spelled() -> None:
    class Provider:
        asked = 0

        async def recognise(self, text: str) -> Recognised:
            self.asked += 1
            return Recognised(Principal(text))

    provider = Provider()
    bearers = Bearers(StillClock(), tokens=None, keys=None, foreign=provider, remember_s=60)
    spellings = [b"Bearer eve", b"bearer eve", b"BEARER   eve", b"Bearer eve ", b"Bearer \teve", b"Bearer  eve\t "]
    for header in spellings:
        assert bearers.remembered(header) or (await bearers.recognise(header)).name == "eve"
        assert all(bearers.remembered(one) == Principal("eve") for one in spellings)
    assert provider.asked == 1
    for header in (b"", b"Bearer", b"Bearer ", b"Bearer ev", b"Bearer eve2", b"Basic eve", b"eve", b"Bearereve"):
        assert bearers.remembered(header) is None


def test_a_bucket_fills_again_and_each_caller_has_its_own() -> None:
    clock = StillClock()
    buckets = Buckets(2.0, 3, clock)
    assert [buckets.take("a") for _ in range(4)] == [0, 0, 0, 0.5]
    assert buckets.take("b") == 0
    clock.now_s += 0.5
    assert [buckets.take("a") for _ in range(2)] == [0, 0.5]
    clock.now_s += 1_000
    assert [buckets.take("a") for _ in range(4)] == [0, 0, 0, 0.5]
    assert buckets.empty_for_s("a") == 0.5
    assert buckets.empty_for_s("never seen") == 0


def test_buckets_are_bounded() -> None:
    buckets = Buckets(1.0, 1, StillClock(), most=10)
    for number in range(1_000):
        buckets.take(number)
    assert len(buckets._level) == 10
    assert buckets.take(999) > 0


@pytest.mark.parametrize(
    ("url", "so"),
    [
        ("https://id.example.com/keys", True),
        ("http://127.0.0.1:1/keys", True),
        ("http://localhost/keys", True),
        ("http://id.example.com/keys", False),
        ("http://127.0.0.1.example.com/", False),
        ("http://localhost@example.com/", False),
        ("file:///etc/passwd", False),
        ("ftp://localhost/x", False),
    ],
)
def test_keys_come_over_tls_or_from_this_machine(url: str, so: bool) -> None:
    assert trustworthy(url) is so
