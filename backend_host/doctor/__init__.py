"""`fairgv-host doctor`: whether this host has what FairGV needs, and what to do about what it lacks.

A file for each group of checks. In each, a reading is a dataclass: what the host said, with nothing judged. A check is a function of a reading
that gives a verdict, so that a test can ask what would be said of any host. Only functions called `read_...` look at the host.

What fails: the daemon would not start, a domain that has a vGPU would not start or not be served, or tenants would not be kept apart. What
warns: that works, with less.

Wrong when: the daemon runs as another user than who asks, or with another environment. Ask as that user.
"""
