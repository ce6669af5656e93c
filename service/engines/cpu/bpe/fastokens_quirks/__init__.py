"""Workarounds for differences, refusals and slow cases of fastokens.

`FastokensEncoder` and the choice of an encoder (cpu/selection.py) call them. Each quirk was seen in
fastokens 0.3.5. Its test in tests/service/engines/cpu/test_fastokens_quirks.py shows that the plain
library still has it. When the test fails, upstream has fixed it, and the workaround can go.

| quirk | worked around in | test_… |
| --- | --- | --- |
| U+180E is white space if a pattern runs through its regex engine | odd_characters | u180e |
| 'ſ is no contraction | odd_characters | long_s |
| a token strips no white space from a normalized one | ambiguous_special_tokens | blanks |
| a single_word token at another one's border is matched differently | coverage | single_word |
| a byte without a token is an error | coverage | a_byte |
| an empty token is refused | spelling.make_readable | an_empty |
| RoBERTa's begin and end tokens are refused | spelling.make_readable | begin_and_end |
| cl100k's pattern is slower than llama3's | cl100k_trailing_whitespace | cl100k |
| DeepSeek's patterns with escapes are slower | spelling.respell | deepseek |
"""
