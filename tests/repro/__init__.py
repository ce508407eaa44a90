"""Tests of `whynan repro`."""
