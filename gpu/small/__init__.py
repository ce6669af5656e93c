"""Small batches: one launch where that is possible.

`one_launch` says which kernel does all of a batch, and has it done in one call of C++ for batches
that ask for ids alone; `call` takes all others through a workspace; `direct_to_device` writes ids
to memory of the device, and `zero_copy_letters` looks letters up where the text lies.

`gpu.dispatch` and `gpu.streaming` call it. Where a kernel finds that there is more to do
(STATUS_FALLBACK), nothing that it wrote is used, and the batch goes on by single launches.
"""
