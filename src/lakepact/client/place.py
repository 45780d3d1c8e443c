"""Where a server is, and what others need to find it there too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Place:
    uri: str
    warehouse: str
    token: str | None = field(default=None, repr=False)
    """A bearer token, or `@` and the path of a file that has one."""

    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    """For PyIceberg: access to files, and whatever else its catalogs take."""

    credential: str | None = field(default=None, repr=False)
    """An OAuth client's `id:secret`, in the place of a token."""

    oauth2_server_uri: str | None = None
    """Where the credential is exchanged. None: at the server itself."""

    ca_bundle: str | None = None
    """A file with the certificates of those who are trusted to vouch for the server. None: the system's."""

    @property
    def token_endpoint(self) -> str:
        return self.oauth2_server_uri or f"{self.uri}/v1/oauth/tokens"
