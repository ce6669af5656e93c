"""The kernels of BlockBPE and GPUTok as their papers describe them, in our own words.

`block_merge.cu` compiles as CUDA and as C++; `block_merge` launches it by CuPy; `merges_alone` has
the same merges by Hugging Face and the hash table that the kernels read. Nothing of the engine
calls them: they are what it is compared with.
"""
