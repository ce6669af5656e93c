"""The GPU engine's host code in C++ (`native/`), and Python modules that wrap it.

`extensions` imports the two extensions. `copy_pool` copies by several threads, `fast_launch` makes
the Launcher of a workspace, `arrays` returns the addresses of arrays, and `split_points` finds
where a row may be split. `cores` counts the cores that this process may use.

`runtime` and all folders above it use these modules, which do not depend on batches and
vocabularies. Without the extensions every module can be imported; the first use of an extension
raises DeviceUnavailable, which says what to install.
"""
