"""What NVIDIA's management library says of devices. It is asked in a process of its own."""
