"""Whether whynan works here: what there is, and a self-test on every device."""
