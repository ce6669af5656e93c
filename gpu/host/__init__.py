"""The host's side of the GPU engine in C++ (`native/`), and its faces in Python.

`extensions` imports the two extensions. `copy_pool` copies by several threads, `fast_launch` makes
the Launcher of a workspace, `arrays` says where arrays lie, and `split_points` finds where a row
may be cut.

`runtime` and everything above it call it. It knows no batch and no vocabulary. Without the
extensions every module can be imported, and the first use of one raises DeviceUnavailable with
what to install.
"""
