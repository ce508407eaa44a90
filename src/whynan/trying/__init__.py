"""Does a change to the source help? Run in a fresh process, and judged."""
