"""Runs several GPUs, each in a process of its own, for the process that has the engine.

    engine process                                       worker of GPU 0, 1, …
    SeveralGpus ─► RemoteGpu ─► WorkerProcess ── calls ──► worker: GpuEngine on its one device
         texts in WorkerMemory ◄─── mapped, page-locked ───┘ writes the ids there

`opening` starts the workers where there are several GPUs; with one GPU nothing of this runs. A
`RemoteGpu` has the methods of a GpuEngine and makes each a call to its worker (`messages`,
`connection`). `worker_memory` has the memory that the workers map, and `regions` that of clients
and front ends. A worker that ends, hangs or loses its CUDA context is killed and started again;
service/engines/hybrid/several_gpus.py decides when. This process never uses a device itself.
"""
