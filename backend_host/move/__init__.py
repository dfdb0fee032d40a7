"""vGPUs that change their Gpu while their programs run."""
