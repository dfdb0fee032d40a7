"""What the rest is written in: errors, types, places of variables."""
