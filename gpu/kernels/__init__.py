"""The host's description of the device code in `cuda/`.

`catalog` lists the kernels with their sources, launch shapes and stages. `families` says which
kernels encode for a kind of vocabulary, and in which order. `job` reads the Job, the only argument
of every kernel, and constants from the CUDA headers. `launch_shape` computes the threads and the
shared memory of blocks on a device.

All folders of gpu/ use this one; it imports none of them. Each shape, field and constant is written
only once, in a header or in the catalog. Nothing here needs a GPU.
"""
