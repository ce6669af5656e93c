"""The hybrid engine, which decides for each batch whether the GPU or the CPU computes it.

server/app.py makes a `HybridEngine` (`engine`) if there is a GPU. `opening` finds the GPUs that the
settings name, and opens one. `several_gpus` presents several GPUs as one; each is a `member`, and
`device_threads` runs its calls; service/multiprocess/gpu_workers runs their processes. `residency`
uploads vocabularies to the GPU in the background, and `gpu_selftest` compares their ids with the
reference and the CPU engine. `crossover_measurement` measures the batch size from which the GPU is
faster. `engine` chooses the GPU or the CPU for each batch, computes on the CPU the batches that the
GPU cannot compute, and counts them by reason. `device_loss` detects a GPU that this process cannot
use any more.

The GPU is only used for vocabularies that passed the self-test. This package depends on CUDA only
through the errors of gpu/errors.py.
"""
