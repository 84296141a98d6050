"""Kernels: how functions are compiled, moves between buffers, and the assembly of bytes."""
