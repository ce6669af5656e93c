"""The workarounds for what fastokens computes otherwise, refuses, or computes slowly.

`FastokensEncoder` and the choice of encoder (cpu/selection.py) call them. Each quirk was seen in
fastokens 0.3.5. Its test in tests/service/engines/cpu/test_fastokens_quirks.py shows that the plain
library still has it, and fails when upstream has mended it: then the workaround goes.

| quirk | worked around in | test_… |
| --- | --- | --- |
| U+180E is white space where a pattern runs through its regex engine | odd_characters | u180e |
| 'ſ is no contraction | odd_characters | long_s |
| a token takes no white space from one behind the normalizers | ambiguous_special_tokens | blanks |
| a single_word token at another one's border is found otherwise | coverage | single_word |
| a byte without a token is an error | coverage | a_byte |
| an empty token is refused | spelling.make_readable | an_empty |
| RoBERTa's begin and end tokens are refused | spelling.make_readable | begin_and_end |
| cl100k's pattern is slower than llama3's | cl100k_trailing_whitespace | cl100k |
| DeepSeek's patterns with escapes are slower | spelling.respell | deepseek |
"""
