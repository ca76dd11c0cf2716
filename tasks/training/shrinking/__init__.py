"""Jobs that make a trained model smaller; some train it meanwhile."""
