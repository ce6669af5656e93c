"""Chat templates as jinja2 runs them here, compared with those of transformers."""

from __future__ import annotations

import os
from array import array

import orjson
import pytest
from jinja2.sandbox import SandboxedEnvironment

from service.apis.dialects.templates import environment, worker
from service.apis.dialects.templates.memory import (
    ERROR,
    FIRST_BYTES,
    KEPT_BYTES,
    TEXT,
    UNREADABLE,
    Answer,
    ChatMemory,
)
from service.apis.dialects.templates.process import write_request
from service.apis.dialects.templates.worker import (
    COMPILED_CHARS,
    MAX_COMPILED,
    MESSAGE_BYTES,
    KeptMessages,
    Templates,
    answer_request,
    make_answer,
    read_request,
    render,
)
from service.core.errors import InvalidRequest

VALUE = {"b": 1, "a": ["é", "<'&"]}


def rendered(template: str, **variables: object) -> str:
    return render(Templates(), template, variables, 1000).decode()


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        ("", """{"b": 1, "a": ["é", "<'&"]}"""),
        ("separators=(',', ':')", """{"b":1,"a":["é","<'&"]}"""),
        ("sort_keys=true", """{"a": ["é", "<'&"], "b": 1}"""),
        ("ensure_ascii=true", """{"b": 1, "a": ["\\u00e9", "<'&"]}"""),
        ("true", """{"b": 1, "a": ["\\u00e9", "<'&"]}"""),  # Without a name, ensure_ascii.
        ("indent=1", """{\n "b": 1,\n "a": [\n  "é",\n  "<'&"\n ]\n}"""),
    ],
)
def test_json_is_written_as_the_filters_arguments_say(arguments, wanted):
    assert rendered(f"{{{{ value | tojson({arguments}) }}}}", value=VALUE) == wanted


def test_what_the_block_generation_sets_is_gone_behind_it():
    block = "{% generation %}{% set x = 'b' %}{{ m }}{{ x }}{% endgeneration %}"
    template = "{% set x = 'a' %}{% for m in 'mn' %}" + block + "{{ x }}{% endfor %}"
    assert rendered(template) == "mbanba"


def test_a_template_is_compiled_once_and_keeps_nothing_of_a_chat():
    templates = Templates()
    template = "{% if not x %}{% set x = 'set' %}{% endif %}{{ x }}{{ y }}"
    compiled = templates.get(template)
    assert render(templates, template, {"x": "given", "y": 1}, 100) == b"given1"
    assert render(templates, template, {}, 100) == b"set"
    assert templates.get(template) is compiled


def test_the_number_and_length_of_compiled_templates_have_limits():
    templates = Templates()
    for number in range(MAX_COMPILED + 1):
        assert render(templates, f"{{{{ {number} }}}}", {}, 100) == str(number).encode()
    assert len(templates.compiled) == MAX_COMPILED
    for text in ("x" * COMPILED_CHARS, "y" * (COMPILED_CHARS + 1)):
        assert render(templates, text, {}, 1 << 20) == text.encode()
    assert "x" * COMPILED_CHARS in templates.compiled
    assert "y" * (COMPILED_CHARS + 1) not in templates.compiled


@pytest.mark.parametrize("failures", [1, 2])
def test_where_memory_is_short_no_template_stays(monkeypatch, failures):
    templates, times = Templates(), []

    def short_of_memory(*_: object, **__: object) -> bytes:
        times.append(len(templates.compiled))
        if len(times) <= failures:
            raise MemoryError
        return b"text"

    render(templates, "{{ 1 }}", {}, 100)
    monkeypatch.setattr(worker, "render", short_of_memory)
    answer = make_answer(templates, {})
    assert times == [1, 0]
    expected = Answer(b"text", TEXT) if failures == 1 else Answer(b"MemoryError: ", ERROR)
    assert answer == expected


def test_a_request_is_read_as_it_was_written():
    deep: list[object] = []
    for _ in range(300):  # orjson writes 254 levels, Python's own writer more.
        deep = [deep]
    requests = [
        {
            "messages": [
                {"content": "é\u2028\x00\U0001f642", "n": [1, -0.0, 5e-324, 2**64 - 1, None]}
            ]
        },
        {"template": "\ud800"},  # As no request has, but orjson does not write it.
        {"deep": deep},
    ]
    for request in requests:
        read = read_request(write_request(request))
        assert repr(read) == repr(request)


def test_both_sides_see_messages_of_any_size_and_long_ones_are_given_back():
    service = ChatMemory.create()
    child = ChatMemory(service.number)
    for size in (1, FIRST_BYTES, 3 * KEPT_BYTES + 1, FIRST_BYTES + 1, 5 * KEPT_BYTES, 2):
        child.write(b"q" * size)
        assert service.read(size) == b"q" * size
        service.write(b"a" * (size // 2))
        assert child.read(size // 2) == b"a" * (size // 2)
        service.give_back()
        assert os.fstat(service.number).st_blocks * 512 <= KEPT_BYTES
    with pytest.raises(PermissionError):  # Or the service would be killed as it reads.
        os.ftruncate(child.number, 1)
    service.close()


@pytest.mark.parametrize("name", ["os.ftruncate", "fcntl.fcntl", "mmap.mmap"])
def test_memory_that_cannot_be_made_leaves_no_descriptor(monkeypatch, name):
    def fail(*_: object) -> None:
        raise OSError("no memory")

    before = os.listdir("/proc/self/fd")
    monkeypatch.setattr(f"service.apis.dialects.templates.memory.{name}", fail)
    with pytest.raises(OSError, match="no memory"):
        ChatMemory.create()
    assert os.listdir("/proc/self/fd") == before


def test_messages_are_kept_for_their_scope_up_to_a_limit():
    kept = KeptMessages(4 * (100 + MESSAGE_BYTES))
    message = b'{"role": "user", "content": "%b"}'
    texts = [message % (b"%d" % number).rjust(69, b"x") for number in range(9)]
    assert {len(text) for text in texts} == {100}
    first = kept.read("a", texts[0])
    assert first == orjson.loads(texts[0])
    assert kept.read("a", texts[0]) is first
    assert kept.read("b", texts[0]) == first
    assert kept.read("b", texts[0]) is not first
    for text in texts:
        assert kept.read("a", text) == orjson.loads(text)
        assert kept.num_bytes <= kept.max_bytes
    assert kept.read("a", texts[0]) is not first
    alike = texts[0].replace(b"x", b"y", 1)  # Of the same size and end.
    for text in (texts[0], alike, texts[0], alike):
        before = kept.num_bytes
        assert kept.read("a", text) == orjson.loads(text)
        assert kept.num_bytes == before
    for bad in (b"{", b'{"content": "x"}', b'{"role": "user", "content": [1]}'):
        with pytest.raises((ValueError, InvalidRequest)):
            kept.read("a", bad)
    nothing = KeptMessages(0)
    assert nothing.read("a", texts[0]) is not nothing.read("a", texts[0])
    assert nothing.num_bytes == 0


def test_kept_messages_are_forgotten_when_memory_is_short(monkeypatch):
    memory, kept = ChatMemory.create(), KeptMessages(1 << 20)
    templates = Templates()
    request = {
        "timeout_s": 9,
        "scope": "a",
        "template": "{{ messages[0].content }}",
        "variables": {},
        "max_chars": 9,
    }
    message = b'{"role":"user","content":"text"}'
    places = array("I", [1, 1 + len(message)]).tobytes()
    parts = write_request(request), b"[%b]" % message, places
    sizes = list(map(len, parts))
    monkeypatch.setattr(worker, "limit_processor_time", lambda _: None)
    try:
        memory.write(*parts)
        assert answer_request(memory, templates, kept, *sizes) == Answer(b"text", TEXT)
        assert kept.num_bytes > 0
        with monkeypatch.context() as short_of_memory:
            short_of_memory.setattr(kept, "read", _raise_memory_error)
            assert answer_request(memory, templates, kept, *sizes).kind == UNREADABLE
        assert kept.num_bytes == 0
        memory.write(*parts)
        with monkeypatch.context() as short_of_memory:
            short_of_memory.setattr(worker, "render", _raise_memory_error)
            assert answer_request(memory, templates, kept, *sizes).kind == ERROR
        assert kept.num_bytes == 0
    finally:
        memory.close()


def _raise_memory_error(*_: object, **__: object) -> bytes:
    raise MemoryError


def test_half_a_surrogate_pair_that_a_template_writes_becomes_a_question_mark():
    answer = make_answer(Templates(), {"template": "a\ud800", "variables": {}, "max_chars": 9})
    assert answer == Answer(b"a?", TEXT)


ATTRIBUTES = (
    "m.role",
    "m.none is none",
    "m.missing is defined",
    "m.missing.other",
    "m.items is defined",
    "m.items() | list",
    "m.update({'a': 1})",
    "m.__class__",
    "m.__class__.__mro__",
    "m['__class__'] is defined",
    "m.own.own.role",
    "loop.first ~ loop.last ~ loop.index ~ loop.index0 ~ loop.length ~ loop.previtem",
    "loop._iterable",
    "loop.__init__.__globals__",
    "loop.missing",
    "ns.number + 1",
    "ns.text ~ ns.flag ~ ns.none ~ ns.list[0]",
    "ns.list.append(2)",
    "ns.missing is defined",
    "ns._Namespace__attrs",
    "ns.__class__",
    "ns.format.format(m)",
    "'{0.__class__}'.format(m)",
    "m.role.upper() ~ (m.role.format is defined)",
)


@pytest.mark.parametrize("expression", ATTRIBUTES)
def test_an_attribute_is_what_jinja2s_sandbox_makes_of_it(expression, monkeypatch):
    head = "{% set ns = namespace(number=1, text='t', flag=true, none=none, list=[1]) %}"
    head += "{% set ns.format = '{0.__class__}'.format %}{% for m in messages %}"
    template = head + "{{ " + expression + " }}|{% endfor %}"
    messages = [{"role": "user", "none": None, "__class__": 1}, {"role": "x", "items": 1}]
    messages[0]["own"] = {"own": messages[1]}
    request = {"template": template, "variables": {"messages": messages}, "max_chars": 1_000}
    ours = make_answer(Templates(), request)
    monkeypatch.setattr(environment.Environment, "getattr", SandboxedEnvironment.getattr)
    assert ours == make_answer(Templates(), request)
