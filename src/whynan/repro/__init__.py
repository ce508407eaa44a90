"""A failing operation as a script of its own: torch alone, a few lines, small, and seen failing."""
