"""Many vGPUs on many GPUs, simulated by discrete events over the policies that the daemon runs. `simulation.simulate` is the way in."""
