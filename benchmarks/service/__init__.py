"""The service over HTTP and gRPC, as a process of its own on loopback.

`http` times small requests beside `plain_server`, `render` chats beside transformers, `frontends`
several front ends beside one, `bulk_apis` large bodies beside echoes, `shared_regions` shared
memory, `long_fasta` a stream of any length; `load` and `training_job` time requests beside other
work, `soak` counts what is lost under faults, and `rolling` what is lost while replicas behind a
proxy are restarted. `dashboard` queries Prometheus for the panels of the Grafana dashboard under
load, `several_gpus` times GPUs beside one, and `slow_clients` attacks the service.
`sample_requests`, `region_client` and `echo_server` are their parts. Clients run on cores that the
service does not use.
"""
