"""What the host knows of the device code in `cuda/`.

`catalog` lists the kernels: their sources, launch shapes and stages. `families` says which kernels
make ids for a kind of vocabulary, and in which order. `job` reads the Job, the one argument of
every kernel, and constants from the CUDA headers.

All folders of gpu/ call it; it imports none of them. A shape, a field or a constant is written
once: in a header or in the catalog. Nothing here needs a GPU.
"""
