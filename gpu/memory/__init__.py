"""Device memory and pinned (page-locked) host memory, in pools.

`workspace` has the memory and the stream that encode one batch, `workspace_layout` computes the
places of its fields, and `workspace_pool` lends workspaces within a cap. `pinned_pool` lends pinned
memory for answers, `caller_pinned` pins memory that the caller allocates, `output_buffer` describes
the caller's memory for ids, and `ipc` opens memory of other processes.

Batches of all sizes use these modules. Nothing is allocated while batches fit into the present
workspaces. Nothing here depends on vocabularies or kernels.
"""
