"""Standard input, output and error of a process that was started without some of them."""

from __future__ import annotations

import os
import sys


def open_standard_streams() -> None:
    """Open /dev/null for each standard stream that the process was started without (as by `2>&-`).

    Otherwise the next file or socket that is opened gets the free descriptor, and the output of libraries goes there.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            # The lowest free descriptor is this one. Workers inherit it.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))
