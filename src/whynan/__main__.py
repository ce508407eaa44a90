"""`python -m whynan`."""

import os
import sys

if __name__ == "__main__":
    # `-m` puts the working directory first, where the program may have a `click.py` of its own.
    try:
        here = os.getcwd()
    except FileNotFoundError:  # it was deleted
        here = ""
    if sys.path[0] in ("", here):
        sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    from whynan.cli import main

    main()
