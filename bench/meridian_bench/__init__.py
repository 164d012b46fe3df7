"""The benchmark: Meridian and its peers on the same rows, the same queries and the same machine."""
