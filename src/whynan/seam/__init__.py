"""The only room that touches the inside of torch."""
