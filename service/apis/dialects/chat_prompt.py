"""Turns chats of OpenAI's and Anthropic's clients into text by the vocabulary's template."""

from __future__ import annotations

from time import perf_counter
from typing import Any

from pydantic import Field

from service.apis.dialects.chat_messages import convert_messages
from service.apis.dialects.common import DialectBody, DialectRequest
from service.apis.dialects.template_queue import Flow
from service.core.context_vars import CLIENT
from service.core.errors import InvalidRequest
from service.operations.operation import find_deadline
from service.registry.entries import LoadedVocabulary


class ChatBody(DialectBody):
    """The fields of a chat request that matter for its ids; others are ignored."""

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
        """Return the variables of the template beside messages and tools, as vLLM sets them.

        Fields win over `chat_template_kwargs`.
        """
        options = dict(self.chat_template_kwargs or {})
        if self.reasoning_effort is not None:
            options.setdefault("enable_thinking", self.reasoning_effort != "none")
            options["reasoning_effort"] = self.reasoning_effort
        if self.documents is not None:
            options["documents"] = self.documents
        options["add_generation_prompt"] = self.add_generation_prompt
        return options


def has_template(request: DialectRequest, entry: LoadedVocabulary) -> bool:
    """Return whether a vocabulary came with a chat template."""
    config = request.service.registry.configs.get(entry.name)
    return config is not None and config.template(has_tools=False) is not None


async def render_chat_text(request: DialectRequest, entry: LoadedVocabulary, chat: ChatBody) -> str:
    """Render a chat as text.

    Raises:
        ServiceError: the vocabulary has no template, or the template refuses the messages.
    """
    if chat.chat_template is not None:
        message = "templates come with a vocabulary, in tokenizer_config.json, not with a request"
        raise InvalidRequest(message, "/chat_template")
    if chat.continue_final_message and chat.add_generation_prompt:
        message = "Cannot set both `continue_final_message` and `add_generation_prompt` to True."
        raise InvalidRequest(message, "/continue_final_message")
    config = request.service.registry.configs.get(entry.name)
    template = None if config is None else config.template(has_tools=bool(chat.tools))
    if config is None or template is None:
        message = f"{entry.name} has no chat template; upload tokenizer_config.json with it"
        raise InvalidRequest(message, "/messages")
    messages = convert_messages(chat.messages)
    variables = {
        **config.special_tokens(),
        "documents": None,
        **chat.template_options(),
        "messages": messages,
        "tools": chat.tools,
    }
    # The template and the ids have one deadline: what one takes is no longer there for the other.
    request.call.ends_at = find_deadline(request.service, request.call)
    wait_s = request.call.ends_at - perf_counter()
    flow = Flow(CLIENT.get(), entry.name)
    receive = request.call.receive
    text = await request.templates.render(flow, template, variables, wait_s, receive)
    return _cut_behind_last(text, messages) if chat.continue_final_message else text


def _cut_behind_last(text: str, messages: list[dict[str, Any]]) -> str:
    """Remove the text that the template writes behind the last message.

    Raises:
        InvalidRequest: the text does not contain the last message.
    """
    content = messages[-1].get("content") or ""
    texts = [part["text"] for part in content] if isinstance(content, list) else [str(content)]
    for final in ("\n".join(texts).strip(), texts[-1].strip() if texts else ""):
        place = text.rfind(final)
        if final and place >= 0:
            return text[: place + len(final)]
    raise InvalidRequest("the template does not repeat the last message", "/messages")
