"""`python -m whynan`."""

from whynan.cli import main

if __name__ == "__main__":
    main()
