"""A server that asks nobody for a name is for the machine it runs on."""

from __future__ import annotations

import ipaddress
import socket

import structlog

from lakepact.errors import InvalidSetting
from lakepact.settings import Settings

_log = structlog.get_logger(__name__)


def check_exposed(settings: Settings) -> None:
    """Raises `InvalidSetting` if others could reach a server that lets everybody do everything."""
    if settings.auth_modes or is_loopback(settings.host):
        return
    if not settings.insecure:
        raise InvalidSetting(
            f"{settings.host} can be reached from other machines, and this server would let everybody do everything. "
            f"Make a token (`lakepact tokens create NAME --admin`) and serve with --auth tokens, or "
            f"use --auth oidc; listen on 127.0.0.1; or, if something in front of it asks for names, say --insecure"
        )
    _log.warning("everybody who reaches this server may do everything in it (--insecure)", host=settings.host)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach it. A name is one if all its addresses are; what cannot be found is none."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        pass
    if not host:
        return False
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        # Whoever binds it will say what is wrong with it.
        return True
    return all(ipaddress.ip_address(str(address[0]).partition("%")[0]).is_loopback for *_, address in found)
