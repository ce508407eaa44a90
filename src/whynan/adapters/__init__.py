"""Places where people run their programs."""
