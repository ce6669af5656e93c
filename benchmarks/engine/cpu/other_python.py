"""Times a version of tokenizers that another Python has; imports nothing of this project.

    PYTHON other_python.py TOKENIZER_JSON TEXTS

TEXTS has a JSON list of batches, each a list of strings. The first line of output is the version.
Each line of input is the number of a batch; its answer is a line of JSON: seconds and rows of ids.
"""

import json
import sys
from time import perf_counter

import tokenizers


def main() -> None:
    """Answer until the input ends."""
    path, texts = sys.argv[1:]
    with open(texts) as file:
        batches = json.load(file)
    tokenizer = tokenizers.Tokenizer.from_file(path)
    # Version 1.0 has no encode_batch_fast.
    encode = getattr(tokenizer, "encode_batch_fast", tokenizer.encode_batch)
    print(json.dumps(tokenizers.__version__), flush=True)
    for number in map(int, sys.stdin):
        begin = perf_counter()
        encodings = encode(batches[number], add_special_tokens=False)
        seconds = perf_counter() - begin
        print(json.dumps([seconds, [encoding.ids for encoding in encodings]]), flush=True)


if __name__ == "__main__":
    main()
