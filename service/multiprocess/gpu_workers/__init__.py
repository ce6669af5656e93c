"""Runs several GPUs for the process of the engine, each GPU in a separate worker process.

    engine process                                       worker of GPU 0, 1, …
    SeveralGpus ─► RemoteGpu ─► WorkerProcess ── calls ──► worker: GpuEngine on its one device
         texts in WorkerMemory ◄─── mapped, page-locked ───┘ writes the ids there

`opening` starts the workers if there are several GPUs; with one GPU this package is not used. A
`RemoteGpu` (`remote_gpu`) has the methods of a GpuEngine and sends each call to its worker
(`messages`, `connection`), which `worker_process` starts and ends. In the worker `worker_server`
answers the calls, and `parent_memory` maps the parent's memory. `worker_memory` manages the memory
that the workers map, and `regions` the memory of clients and front ends. A worker that ends, hangs
or loses its CUDA context is killed and restarted; service/engines/hybrid/several_gpus.py decides
when. The process of the engine never uses a device itself.
"""
