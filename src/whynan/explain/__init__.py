"""What do we tell the reader? Every word of a report is chosen here."""
