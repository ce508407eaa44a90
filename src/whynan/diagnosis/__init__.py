"""Where did it begin, and why? Rules over recorded evidence, free of torch."""
