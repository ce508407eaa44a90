"""Draws a story: terminal and JSON."""
