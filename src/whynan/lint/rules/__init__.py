"""One pattern per file; the table in `lint/table.py` finds every file in this folder."""
