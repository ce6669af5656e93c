"""What lm_eval's remote tokenizer gets from a running service. Arguments as of openai.py."""

import sys

sys.path.pop(0)  # This folder, whose files have the clients' names.

from lm_eval.utils import RemoteTokenizer, check_remote_tokenizer_support

url = f"{sys.argv[1]}/v1/completions"
assert check_remote_tokenizer_support(url)
tokenizer = RemoteTokenizer(url)
assert tokenizer.encode("Hello, world") == [15496, 11, 995]
assert tokenizer.decode([15496, 11, 995]) == "Hello, world"
assert tokenizer.batch_decode([[15496], [11]]) == ["Hello", ","]
assert tokenizer.eos_token == "<|endoftext|>"
assert tokenizer.eos_token_id == 50256
print("all as expected")
