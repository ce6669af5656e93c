"""Converts chats of OpenAI's and Anthropic's clients to text, with a chat template, and to ids.

Ids of sections that occurred earlier in a conversation come from the section cache.
"""

from __future__ import annotations

import contextlib
from functools import partial
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from service.apis.dialects.common import DialectBody, DialectRequest, encode_texts, parse_body
from service.apis.dialects.section_cache import MIN_BYTES, Scope, Section, link
from service.apis.dialects.templates.chat_messages import convert_messages, describe_tools
from service.apis.dialects.templates.pool import UnreadableMessages
from service.apis.dialects.templates.queue import Flow
from service.core.context_vars import CLIENT
from service.core.errors import InvalidRequest, RowRefused
from service.operations.operation import find_deadline
from service.operations.rendering.json_stream import write_ids
from service.registry.entries import LoadedVocabulary

MESSAGES = "/messages"  # The place of the messages in a request.
# Marks the end of a message to continue; templates may know this text of transformers.
END = "CONTINUE_FINAL_MESSAGE_TAG "


class ChatBody(DialectBody):
    """The fields of a chat request that affect its ids; other fields are ignored."""

    messages: list[dict[str, Any]] = Field(min_length=1)
    tools: list[dict[str, Any]] | None = None
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    add_special_tokens: bool = False
    chat_template: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    documents: list[dict[str, Any]] | None = None
    reasoning_effort: str | None = None

    def template_options(self) -> dict[str, Any]:
        """Return the template variables other than messages and tools, as vLLM sets them.

        Fields of the request take precedence over `chat_template_kwargs`.
        """
        options = dict(self.chat_template_kwargs or {})
        if self.reasoning_effort is not None:
            options.setdefault("enable_thinking", self.reasoning_effort != "none")
            options["reasoning_effort"] = self.reasoning_effort
        if self.documents is not None:
            options["documents"] = self.documents
        options["add_generation_prompt"] = self.add_generation_prompt
        return options


def has_template(entry: LoadedVocabulary) -> bool:
    """Return whether a vocabulary was uploaded with a chat template."""
    return entry.config is not None and entry.config.template(has_tools=False) is not None


async def render_chat_text(request: DialectRequest, entry: LoadedVocabulary, chat: ChatBody) -> str:
    """Render a chat as text, as `render_chat_utf8` does."""
    return (await render_chat_utf8(request, entry, chat)).decode(errors="replace")


async def render_chat_utf8(
    request: DialectRequest, entry: LoadedVocabulary, chat: ChatBody
) -> bytes:
    """Render a chat as text in UTF-8 with the vocabulary's template.

    Raises:
        ServiceError: the vocabulary has no template, or the template refuses the messages.
    """
    kwargs = chat.chat_template_kwargs or {}
    if chat.chat_template is not None or kwargs.get("chat_template") is not None:
        message = (
            "must be null: a chat template is uploaded with its vocabulary, in "
            "tokenizer_config.json"
        )
        inner = "" if chat.chat_template is not None else "/chat_template_kwargs"
        raise InvalidRequest(message, f"{inner}/chat_template")
    if chat.continue_final_message and chat.add_generation_prompt:
        if "add_generation_prompt" in chat.model_fields_set:
            message = (
                "Cannot set both `continue_final_message` and `add_generation_prompt` to True."
            )
            raise InvalidRequest(message, "/continue_final_message")
        chat.add_generation_prompt = False
    tools = kwargs.get("tools") if chat.tools is None else describe_tools(chat.tools)
    config = entry.config
    template = None if config is None else config.template(has_tools=bool(tools))
    if config is None or template is None:
        message = f"{entry.name} has no chat template; upload tokenizer_config.json with it"
        raise InvalidRequest(message, "/messages")
    variables = {
        **config.special_tokens(),
        "documents": None,
        **chat.template_options(),
        "tools": tools,
    }
    # Rendering and encoding share one deadline.
    request.call.ends_at = find_deadline(request.service, request.call)
    wait_s = request.call.ends_at - perf_counter()
    flow = Flow(CLIENT.get(), entry.name)
    render = partial(request.templates.render, flow, template, receive=request.call.receive)
    if request.messages is not None and not chat.continue_final_message:
        scope = f"{flow.client}\n{request.body.get('cache_salt') or ''}"
        with contextlib.suppress(UnreadableMessages):  # They are refused below.
            return await render(variables, wait_s, messages=request.messages, scope=scope)
    if request.messages is not None:
        request.read_messages()
        chat.messages = parse_body(ChatBody, request).messages
    messages = convert_messages(chat.messages)
    wait_s = request.call.ends_at - perf_counter()
    marked = _mark_end(messages) if chat.continue_final_message else messages
    text = await render(variables | {"messages": marked}, wait_s)
    if chat.continue_final_message:
        return _cut_at_end(text.decode(errors="replace"), messages[-1]["content"]).encode()
    return text


def _mark_end(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Append END to the last message, to find the place where the rendered text is cut."""
    *before, last = messages
    content = last["content"]
    if isinstance(content, list) and content:
        *parts, final = content
        return [*before, {**last, "content": [*parts, {**final, "text": final["text"] + END}]}]
    return [*before, {**last, "content": f"{content or ''}{END}"}]


def _cut_at_end(text: str, content: Any) -> str:
    """Remove END and all text that the template has written after it.

    Args:
        text: the rendered chat.
        content: the content of its last message.

    Raises:
        InvalidRequest: the text does not contain the last message.
    """
    final = content[-1]["text"] if content and isinstance(content, list) else str(content or "")
    place = text.rfind(END.strip())
    if place < 0 or final.strip() not in text:
        raise InvalidRequest(
            (
                "the rendered chat does not contain the text of the last message, which "
                "continue_final_message continues"
            ),
            "/messages",
        )
    if text.startswith(END, place):
        return text[:place]
    return text[:place].rstrip()  # The template strips the message.


class ChatIds(NamedTuple):
    """The ids of a rendered chat.

    Attributes:
        num_ids: the number of ids.
        json: the ids as a JSON list.
        headers: headers of the answer that warn the client; usually none.
    """

    num_ids: int
    json: bytes
    headers: dict[str, str]


async def encode_chat(
    request: DialectRequest, entry: LoadedVocabulary, text: bytes, *, add_special_tokens: bool
) -> ChatIds:
    """Encode a rendered chat in UTF-8, except for sections whose ids are cached.

    Raises:
        ServiceError: the text is refused.
    """
    is_short = len(text) <= request.service.settings.max_text_bytes
    if is_short and not add_special_tokens and request.sections.takes(text):
        with contextlib.suppress(RowRefused):  # The whole text is refused below, with its place.
            return await _encode_sections(request, entry, text)
    whole = text.decode(errors="replace")
    encoded = await encode_texts(
        request, entry, [whole], add_special_tokens=add_special_tokens, where=MESSAGES
    )
    (ids,) = encoded.arrays
    return ChatIds(len(ids), write_ids(ids), encoded.headers)


async def _encode_sections(
    request: DialectRequest, entry: LoadedVocabulary, text: bytes
) -> ChatIds:
    """Return the ids of all sections, from the cache where possible; cache those of new sections.

    Raises:
        ServiceError: a section is refused.
    """
    cache, vocabulary, metrics = request.sections, entry.vocabulary, request.service.metrics
    client = CLIENT.get()
    scope = Scope(client, str(request.body.get("cache_salt") or ""), vocabulary.digest)
    found = cache.find(scope, text)
    new = [part for part in found if isinstance(part, bytes)]
    num_new = sum(map(len, new))
    num_known = len(text) - num_new
    metrics.count_sections(True, len(found) - len(new), num_known)
    request.call.num_bytes += num_known
    request.service.batcher.admission.limits.charge(client, num_known)
    added: list[Section] = []
    if new:
        rows = [part.decode(errors="replace") for part in new]
        encoded = await encode_texts(
            request, entry, rows, add_special_tokens=False, where=MESSAGES, checks_rows=False
        )
        added = list(map(_make_section, new, encoded.arrays))
        for section in added:
            cache.add(scope, section)
        metrics.count_sections(False, len(new), num_new)
        if len(found) == 1 and len(text) > MIN_BYTES:
            cache.learn_border(vocabulary, encoded.arrays[0])
    remaining = iter(added)
    sections = [next(remaining) if isinstance(part, bytes) else part for part in found]
    if added:
        link(sections)
    json = b"[%b]" % b",".join([section.json for section in sections if section.num_ids])
    return ChatIds(sum([section.num_ids for section in sections]), json, {})


def _make_section(text: bytes, ids: NDArray[np.integer[Any]]) -> Section:
    return Section(text, len(ids), write_ids(ids)[1:-1])
