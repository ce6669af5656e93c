"""The same ids, computed by CUDA; the only room that imports CuPy."""
