"""The knobs of every candidate, and of the makers that train nothing."""
