"""Parts of `tokenizer_discovery`, which finds the ids of a tokenizer.

`embedder_fields` reads the attributes of models and tokenizers, `probe_texts` makes the texts
that are compared, `tokenizer_json` finds patterns that the texts would not show, `begin_end_tokens`
finds begin and end tokens, and `engine_vocabulary` makes an engine encode instead of a tokenizer.
Only `tokenizer_discovery` calls them, and they use neither devices nor torch.
"""
