"""One run of a program, from its launch to its exit code."""
