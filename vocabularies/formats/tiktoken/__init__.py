"""Reads and writes tiktoken's rank files, and reads Mistral's tekken.json.

`ranks` reads and writes the lines "base64 rank"; `rank_merges` derives merges from ranks;
`known_files` identifies published files by their SHA-256, because a rank file contains neither the
pretokenizer nor the special tokens; `tekken` reads Mistral's JSON.

`formats.vocabulary_files` calls these modules. Files whose ids depend on tiktoken's hash order are
refused.
"""
