"""Who is asking, and what they may do. Values and rules only: no HTTP, no IO.

principal.py  who is asking
secrets.py    API tokens, and what is kept of them
signed.py     statements that this server signs itself
claims.py     what a token of an identity provider must say, and whom it names
"""

from lakepact.access.principal import ANYONE, NOBODY, Principal

__all__ = ["ANYONE", "NOBODY", "Principal"]
