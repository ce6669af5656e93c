"""The documents for users; `python -m docs.generate` writes those that follow from the code."""
