"""Workspaces, pinned memory and memory shared with other processes."""
