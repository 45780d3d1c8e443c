"""Who is asking, and what they may do. Values and rules only: no HTTP, no tokens, no IO.

principal.py  who is asking
"""

from lakepact.access.principal import ANYONE, Principal

__all__ = ["ANYONE", "Principal"]
