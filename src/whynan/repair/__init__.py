"""Does a change to the source help? Proposed, run in a fresh process, and judged."""
