"""The Open Inference Protocol v2 over HTTP and gRPC, with Triton's extensions.

A vocabulary is a model: texts are its inputs, ids its outputs. `requests`, `tensors` and `infer`
are shared by both transports; `http_infer` and `http_routes` are HTTP, `grpc_service` and
`grpc_regions` gRPC. `shared_memory`, `region_registry`, `region_tensors` and `device_path` are for
tensors in shared memory of the system or of CUDA. `models` and `statistics` describe models and
count their requests.

Called by clients written for Triton or KServe; the application makes the `state`.

HTTP and gRPC answer with the same tensors. A region stays mapped until the last request that uses
it has ended.
"""
