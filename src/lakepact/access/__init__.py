"""Who is asking, and what they may do. Values and rules only: no HTTP, no IO.

principal.py  who is asking
secrets.py    API tokens, and what is kept of them
signed.py     statements that this server signs itself
claims.py     what a token of an identity provider must say, and whom it names
rules.py      roles, what they are held on, and what each operation needs
"""

from lakepact.access.principal import ANYONE, NOBODY, Principal
from lakepact.access.rules import Rights, Role, Scope

__all__ = ["ANYONE", "NOBODY", "Principal", "Rights", "Role", "Scope"]
