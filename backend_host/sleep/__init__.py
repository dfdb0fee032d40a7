"""Contexts of suspended vGPUs that leave the device, and come back."""
