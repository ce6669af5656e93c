"""The Open Inference Protocol v2 over HTTP and gRPC, with Triton's extensions.

A vocabulary is a model: texts are its inputs, ids its outputs. Both transports share `requests`,
`tensors` and `infer`; `http_infer` and `http_routes` implement HTTP, `grpc_service` and
`grpc_regions` gRPC. `shared_memory`, `region_registry`, `region_tensors` and `device_path` transfer
tensors in shared system or CUDA memory. `models` describes models, `statistics` counts their
requests, and `state` contains the regions and the statistics.

Clients written for Triton or KServe call these routes.

HTTP and gRPC answer with the same tensors. A region stays mapped until the last request that uses
it has ended.
"""
