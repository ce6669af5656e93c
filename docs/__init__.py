"""The documents for users; `python -m docs.generate` writes settings.md and errors.md."""
