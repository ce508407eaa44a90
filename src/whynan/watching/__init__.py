"""Is this step healthy? Looks at what decides harm, and can repeat the step."""
