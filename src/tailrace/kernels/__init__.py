"""Kernels: compilation of functions, copies between buffers, and the assembly of bytes. Every process."""
