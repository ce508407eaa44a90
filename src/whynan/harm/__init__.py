"""The one judge: events and "non-finite here" in, harm out; no torch."""
