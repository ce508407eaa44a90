"""`python -m whynan`."""

import os
import sys

if __name__ == "__main__":
    # `-m` puts the working directory first, where the program may have a `click.py` of its own.
    if sys.path[0] in ("", os.getcwd()):
        sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    from whynan.cli import main

    main()
