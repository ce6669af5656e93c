"""Chats whose sections are known: their ids are those of the whole text, and memory is bounded."""

from __future__ import annotations

import json
import random
from itertools import chain
from types import SimpleNamespace

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers

from service.apis.dialects.section_cache import Scope, Section, SectionCache, is_border, link
from service.core import json_elements
from service.engines.cpu.engine import CpuEngine
from tests.service.apis.dialects.calls import CHAT, post, upload
from tests.support.app_client import serving
from tests.support.waiting import run
from vocabularies.batch.batch import Batch, EncodeOptions
from vocabularies.builtin import load
from vocabularies.model.types import Bpe, SpecialToken

ENGINE = CpuEngine()
LETTERS = "<a>|_ "
SCOPE = Scope("key", "", "digest")
RENDER = "/v1/chat/completions/render"
STEPS = (
    (None, pre_tokenizers.ByteLevel(add_prefix_space=False)),
    (None, pre_tokenizers.ByteLevel(add_prefix_space=True)),
    (None, pre_tokenizers.Metaspace(prepend_scheme="first")),
    (None, pre_tokenizers.Metaspace(prepend_scheme="always")),
    (normalizers.Sequence([normalizers.Prepend("_"), normalizers.Replace(" ", "_")]), None),
    (normalizers.Strip(), pre_tokenizers.Whitespace()),
)
FLAGS = ("lstrip", "rstrip", "single_word", "normalized")
added_tokens = st.lists(
    st.tuples(
        # The library takes all memory for a token that a normalizer makes empty.
        st.text(LETTERS, min_size=1, max_size=4).filter(str.strip),
        st.sets(st.sampled_from(FLAGS), max_size=1),
        st.booleans(),
    ),
    min_size=1,
    max_size=5,
    unique_by=lambda each: each[0],
)


def library(step, tokens):
    """A tokenizer of characters with added tokens, as the library computes it."""
    alphabet = sorted({*pre_tokenizers.ByteLevel.alphabet(), *LETTERS, "▁"})
    merges = [("<", "a"), ("a", "_"), ("Ġ", "a"), ("▁", "<")]
    ids = [*alphabet, *("".join(pair) for pair in merges)]
    model = models.BPE({token: number for number, token in enumerate(ids)}, merges)
    tokenizer = Tokenizer(model)
    normalizer, pre_tokenizer = step
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    if pre_tokenizer is not None:
        tokenizer.pre_tokenizer = pre_tokenizer
    for content, flags, special in tokens:
        named = {"normalized": False} | dict.fromkeys(flags, True)
        tokenizer.add_tokens([AddedToken(content, special=special, **named)])
    return tokenizer


@given(st.sampled_from(STEPS), added_tokens, st.text(LETTERS, max_size=60))
def test_a_text_may_be_cut_in_front_of_each_border(step, tokens, text):
    tokenizer = library(step, tokens)
    special = tuple(
        SpecialToken(
            content,
            tokenizer.token_to_id(content),
            special=special,
            **{flag: True for flag in flags},
        )
        for content, flags, special in tokens
    )
    vocabulary = SimpleNamespace(model=Bpe(()), special_tokens=special)
    borders = [token for token in special if is_border(vocabulary, token)]
    assume(borders)
    whole = tokenizer.encode(text, add_special_tokens=False).ids
    for border in borders:
        begins = [0]
        while (place := text.find(border.content, begins[-1] + 1)) >= 0:
            begins.append(place)
        parts = [text[b:e] for b, e in zip(begins, [*begins[1:], None], strict=True)]
        encodings = [tokenizer.encode(part, add_special_tokens=False).ids for part in parts]
        assert [*chain.from_iterable(encodings)] == whole, (border, parts)


def test_some_tokens_are_no_borders():
    def accepts(content, *others, model=None, **flags):
        token = SpecialToken(content, 0, **flags)
        vocabulary = SimpleNamespace(model=model or Bpe(()), special_tokens=(token, *others))
        return is_border(vocabulary, token)

    assert accepts("<|user|>", SpecialToken("|x|", 1), SpecialToken("user", 2, rstrip=True))
    assert not accepts("<|user|>", lstrip=True)
    assert not accepts("<|user|>", normalized=True)
    assert not accepts("<|user|>", matched=False)
    assert not accepts("\n<|user|>")
    assert not accepts("<|user|>", SpecialToken("word", 1, single_word=True))
    assert not accepts("<|user|>", SpecialToken("x<|user|>", 1))
    assert not accepts("<|user|>", SpecialToken("<|user|>x", 1))
    assert not accepts("<|user|>", SpecialToken("x<", 1))
    assert not accepts("<|<|")
    assert not accepts("<|user|>", model=load("hyenadna").model)


def cut(cache, text, scope=SCOPE):
    """The texts of a text's sections, and how many of them are cached."""
    found = cache.find(scope, text)
    texts = [each if isinstance(each, bytes) else each.text for each in found]
    assert b"".join(texts) == text
    return texts, sum(isinstance(each, Section) for each in found)


def learned(vocabulary, text):
    """A cache that has learned the border of a text, and the ids of the text."""
    cache = SectionCache(1 << 20)
    assert cut(cache, text.encode(), DIGEST_SCOPE) == ([text.encode()], 0)
    options = EncodeOptions(add_special_tokens=False)
    ids = ENGINE.encode(vocabulary, Batch([text], options=options)).ids
    cache.learn_border(vocabulary, ids)
    return cache, ids


GPT2 = load("gpt2")
DIGEST_SCOPE = Scope("key", "", GPT2.digest)


def test_the_most_frequent_border_cuts_texts_into_sections():
    text = "".join(f"<|endoftext|>{'wörd ' * number}" for number in range(1, 150))
    cache, ids = learned(GPT2, text)
    texts, _ = cut(cache, text.encode(), DIGEST_SCOPE)
    sections = [section.decode() for section in texts]
    assert all(each.startswith("<|endoftext|>") for each in sections)
    assert all(len(each.encode()) >= 256 for each in sections[:-1])
    options = EncodeOptions(add_special_tokens=False)
    joined = ENGINE.encode(GPT2, Batch(sections, options=options)).ids
    assert np.array_equal(joined, ids)
    cache.learn_border(GPT2, ids[:0])  # A text without any special token.
    assert cut(cache, text.encode(), DIGEST_SCOPE) == ([text.encode()], 0)


@given(st.lists(st.lists(st.integers(0, 5), max_size=9), min_size=1, max_size=8))
def test_sections_that_follow_each_other_are_cut_as_any_others(chats):
    """Whatever texts came before, and however their sections followed each other."""
    border = "<|endoftext|>"
    cache, _ = learned(GPT2, border * 50)
    plain, _ = learned(GPT2, border * 50)
    # Sections of less and of more than 256 bytes, of which one is the begin of another.
    parts = [border + "word " * size for size in (1, 10, 60, 61, 120)] + [border + "other" * 60]
    for chat in [*chats, *chats]:
        text = "".join(parts[number] for number in chat).encode()
        texts, num_cached = cut(cache, text, DIGEST_SCOPE)
        assert texts == cut(plain, text, DIGEST_SCOPE)[0]
        assert num_cached == sum((DIGEST_SCOPE, each) in cache._sections for each in texts)
        sections = [Section(each, 1, b"1") for each in texts]
        for section in sections:
            cache.add(DIGEST_SCOPE, section)
        link(sections)


def test_memory_is_bounded_and_the_most_recently_used_sections_stay():
    cache = SectionCache(10_000)
    for number in range(100):
        cache.add(SCOPE, Section(f"text {number}".encode() * 20, 1, b"1" * 100))
        assert cache.num_bytes <= 10_000
        assert cut(cache, b"text 0" * 20)[1]
    assert not cut(cache, b"text 1" * 20)[1]
    before = cache.num_bytes
    cache.add(SCOPE, Section(b"text 0" * 20, 1, b"1" * 100))  # Two requests had it at once.
    assert cache.num_bytes == before
    assert cache.takes(b"x" * 2_500)
    assert not cache.takes(b"x" * 2_501)
    assert not SectionCache(0).takes(b"x")


def test_a_section_does_not_keep_the_next_one():
    border = b"<|endoftext|>"
    cache, _ = learned(GPT2, border.decode() * 50)
    first, second = border + b"a" * 400, border + b"b" * 400
    cache.add(DIGEST_SCOPE, Section(first, 1, b"1"))
    cache.add(DIGEST_SCOPE, Section(second, 1, b"1"))
    assert cut(cache, first + second, DIGEST_SCOPE)[1] == 2
    section, following = cache.find(DIGEST_SCOPE, first + second)
    assert section.next() is following
    del cache._sections[DIGEST_SCOPE, second]
    assert cut(cache, first + second, DIGEST_SCOPE)[1] == 2  # This request still has it.
    del following
    assert section.next() is None
    assert cut(cache, first + second, DIGEST_SCOPE)[1] == 1


def test_no_scope_has_the_sections_of_another():
    cache = SectionCache(10_000)
    cache.add(SCOPE, Section(b"text", 1, b"1"))
    assert cut(cache, b"text", Scope(*SCOPE))[1]
    for field in Scope._fields:
        assert not cut(cache, b"text", SCOPE._replace(**{field: "other"}))[1]


async def _sections(client):
    """The numbers of known and of new sections, by the metrics."""
    lines = (await client.get("/metrics")).text.splitlines()
    names = [f'warptok_chat_sections_total{{result="{result}"}} ' for result in ("known", "new")]
    return [float(line.removeprefix(n)) for n in names for line in lines if line.startswith(n)]


TEMPLATES = (
    "{% for m in messages %}<|endoftext|>{{ m.role }}\n{{ m.content }}{% endfor %}",
    # Earlier answers lose their thoughts, as with many models.
    "{% for m in messages %}<|endoftext|>{{ m.role }}{% if loop.last or m.role == 'user' %}"
    "{{ m.content }}{% else %}{{ m.content.split('!')[-1] }}{% endif %}{% endfor %}<|endoftext|>",
    "{{ messages | length }}{% for m in messages | reverse %}{{ m.content }}{% endfor %}",
)


def test_the_ids_of_a_growing_conversation_are_those_without_a_cache():
    async def scenario():
        chance = random.Random(7)
        async with (
            serving(ENGINE) as (client, _),
            serving(ENGINE, chat_cache_bytes=0) as (plain, _),
        ):
            for template in TEMPLATES:
                await upload(client, template)
                await upload(plain, template)
                messages = []
                for turn in range(14):
                    words = ("Hello ", "world! ", "<|endoftext|>", "<|endof", "text|>", "語 ", "\n")
                    text = "".join(chance.choices(words, k=chance.choice((3, 40, 400))))
                    messages.append({"role": ("user", "assistant")[turn % 2], "content": text})
                    for path in (RENDER, "/tokenize", "/v1/messages/count_tokens"):
                        body = {"model": "chat", "messages": messages}
                        known, wanted = [(await post(c, path, **body)) for c in (client, plain)]
                        assert known.status_code == 200, known.text
                        answers = [json.loads(each.content) for each in (known, wanted)]
                        assert answers[0].pop("request_id", 0) or path != RENDER
                        answers[1].pop("request_id", 0)
                        assert answers[0] == answers[1], (template, messages, path)
            known, new = await _sections(client)
            assert known > 3 * new > 0
            assert await _sections(plain) == [0, 0]

    run(scenario)


def test_a_salt_has_sections_of_its_own_and_a_text_that_is_too_long_is_refused():
    async def scenario():
        async with serving(ENGINE, max_text_bytes=100_000) as (client, _):
            await upload(client)
            body = {"model": "chat", "messages": CHAT}
            for salt in (None, "", "a", "b", "a"):
                answer = await post(client, RENDER, **body, cache_salt=salt)
                assert answer.json()["cache_salt"] == salt
            assert await _sections(client) == [2, 3]
            long = [{"role": "user", "content": "語" * 25_000 + "<|endoftext|>" * 2_000}]
            answer = await post(client, RENDER, model="chat", messages=long)
            assert answer.status_code == 413, answer.text  # Though no section is too long.
            assert await _sections(client) == [2, 3]

    run(scenario)


MESSAGE = b'{"role": "user", "content": "Hello"}'
ODD_MESSAGES = (
    MESSAGE,
    b"1",
    b"{}",
    b"{",
    b"\xff",
    b'{"content": [1]}',
    b'{"content": [{"type": "image_url"}]}',
    b'{"content": [{"type": "text", "text": "a"}, "b"]}',
    b'{"role": "assistant", "content": null, "reasoning": "so", "tool_calls": []}',
    b'{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}',
    b'{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}',
    b'{"role": "user", "content": "", "n": [123456789012345678901234567890]}',
    b'{"role": "user", "content": "\\ud83d"}',
    b'{"role": "user", "content": "\\ud83d"}], "surrogates": "replace", "documents": [{}',
    MESSAGE + b'], "continue_final_message": true, "add_generation_prompt": false, "tools": [{}',
    MESSAGE + b'], "temperature": 9, "tools": [{}',
    MESSAGE + b'], "messages": [{"role": "user", "content": "two"}',
)


def test_messages_that_their_process_reads_give_the_same_answers(monkeypatch):
    async def scenario():
        async with serving(ENGINE) as (client, _):
            await upload(client, "{% for m in messages %}{{ m.role }} {{ m }}{% endfor %}")
            for odd in ODD_MESSAGES:
                body = b'{"model": "chat", "messages": [%b, %b]}' % (MESSAGE, odd)
                answers = []
                for native in (json_elements.native, None):
                    monkeypatch.setattr(json_elements, "native", native)
                    answer = await client.post(RENDER, content=body)
                    answers.append((answer.status_code, answer.json()))
                    answers[-1][1].pop("request_id", None)
                    monkeypatch.undo()
                assert answers[0] == answers[1], odd

    run(scenario)
