"""Checks of values that exist already: arrays, containers of them, and files."""
