"""The ids over HTTP; the only room that imports FastAPI."""
