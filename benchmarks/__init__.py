"""Each benchmark first proves the ids equal, then times; results are JSON files."""
