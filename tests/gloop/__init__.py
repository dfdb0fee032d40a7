"""GLoop, on softgpu."""
