"""One failure family per file; the registry finds every file in this folder."""
