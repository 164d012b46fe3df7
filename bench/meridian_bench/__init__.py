"""The benchmark: Meridian and its peers on the same rows, the same questions and the same machine."""
