"""Many vGPUs on many GPUs, simulated by discrete events over the daemon's policies and others. `simulation.simulate` is the way in."""
