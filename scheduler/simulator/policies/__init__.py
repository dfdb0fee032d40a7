"""Policies that run in the simulator only, for comparison: real hosts cannot give them what they are made of, or had it under another name."""
