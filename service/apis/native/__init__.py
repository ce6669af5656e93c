"""The native REST routes."""
