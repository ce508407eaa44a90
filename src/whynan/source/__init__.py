"""The user's text: parsed once, followed, quoted."""
