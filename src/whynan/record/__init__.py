"""What exactly happened? Every operation of a traced block, and the slice that led to harm."""
