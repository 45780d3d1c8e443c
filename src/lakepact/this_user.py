"""Who this process runs as, in the words of an error about what it may not do."""

from __future__ import annotations

import os
import pwd


def this_user() -> str:
    number = os.geteuid()
    try:
        return f"user {pwd.getpwuid(number).pw_name}"
    except KeyError:
        # In a container a user often has a number and no name.
        return f"user {number}"
