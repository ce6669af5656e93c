"""The hybrid engine, which decides for each batch whether the GPU or the CPU computes it.

server/app.py makes a `HybridEngine` (`engine`) where there is a GPU. `opening` finds the GPUs of
the settings and opens one. `several_gpus` makes several of them one, each a `member`, whose calls
`device_threads` runs; service/multiprocess/gpu_workers has their processes.
`residency` uploads vocabularies to the GPU in the background, and `gpu_selftest` compares their ids
with the reference and the CPU engine. `crossover` measures from which size on the GPU is faster.
`engine` chooses the GPU or the CPU for each batch, computes on the CPU what the GPU cannot, and
counts it by reason. `device_loss` recognizes a GPU that this process cannot use any more.

The GPU answers only for vocabularies that passed the self-test. Of CUDA, this folder knows only
the errors of gpu/errors.py.
"""
