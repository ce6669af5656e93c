"""Encodes small batches, by a fused kernel if possible.

`fused` chooses the fused kernel of a batch, which runs all stages in one launch, and encodes
batches that need only ids by one call of C++. `call` encodes all other small batches in a
workspace. `direct_to_device` writes ids into device memory, and `zero_copy_letters` looks letters
up without copying the text first.

`gpu.engine` and `gpu.streaming` call these modules. A fused kernel that cannot finish a batch
sets STATUS_FALLBACK. Fallback kernels then complete or replace its output; they are launched one by
one.
"""
