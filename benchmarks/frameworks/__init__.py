"""Frameworks and NVIDIA's libraries, natively and through FairGV: the programs, and what runs them side by side."""
