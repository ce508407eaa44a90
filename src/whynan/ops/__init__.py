"""What whynan knows of an operation, written once."""
