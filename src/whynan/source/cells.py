"""A notebook's cells by the names that their reader knows."""

from __future__ import annotations

import sys


def cell_name(file: str) -> str | None:
    """`In[3]` for the temporary file that IPython compiles a cell under; None for a real file.

    >>> cell_name("train.py")
    """
    # Asked for, never imported: a program that runs in no notebook pays nothing.
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    known = shell.compile.format_code_name(file) if shell is not None else None
    return str(known[1]) if known else None
