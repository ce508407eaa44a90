"""What would an expert change? Proposed from the source and the recorded values; nothing is run."""
