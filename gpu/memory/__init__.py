"""Memory of the device and pinned memory of the host, lent and given back.

`workspace` is memory and a stream for one batch, `workspace_layout` says where its fields lie, and
`workspace_pool` lends workspaces within a cap. `pinned_pool` lends memory for answers until nobody
holds it; `caller_pinned` pins memory of the caller's; `output_buffer` describes where ids are
wanted; `ipc` opens memory of other processes.

Batches of all sizes come here. Nothing is allocated while batches fit. No module knows a vocabulary
or a kernel.
"""
