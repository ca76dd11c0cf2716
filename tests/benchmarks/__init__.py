"""The benchmark suite: every figure is a ratio of two things that ran in turn, in one process."""
