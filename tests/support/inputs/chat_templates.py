"""Chat templates like those of many models: our own, and those of a folder if there is one.

WARPTOK_TEMPLATES names the folder; without it `templates` in the data folder is tried. Its files
NAME.jinja are compared as well.
"""

from __future__ import annotations

import os
from pathlib import Path

from tests.support.data_files import DATA

FOLDER = Path(os.environ.get("WARPTOK_TEMPLATES") or DATA / "templates")

REASONING = """\
{%- if tools %}
{{- '<|im_start|>system\\n# Tools\\n<tools>' }}
{%- for tool in tools %}{{- '\\n' ~ (tool | tojson) }}{%- endfor %}
{{- '\\n</tools><|im_end|>\\n' }}
{%- endif %}
{%- set ns = namespace(last=-1) %}
{%- for message in messages[::-1] %}
  {%- if ns.last < 0 and message.role == 'user' %}
    {%- set ns.last = (messages | length - 1) - loop.index0 %}
  {%- endif %}
{%- endfor %}
{%- for message in messages %}
  {%- set content = message.content if message.content is string else '' %}
  {%- if message.role == 'assistant' %}
    {%- set thoughts = '' %}
    {%- if message.reasoning_content is string %}{%- set thoughts = message.reasoning_content %}
    {%- elif '</think>' in content %}
      {%- set thoughts = content.split('</think>')[0].split('<think>')[-1].strip('\\n') %}
      {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
    {%- endif %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if loop.index0 > ns.last and thoughts %}
      {{- '<think>\\n' ~ thoughts.strip() ~ '\\n</think>\\n\\n' }}
    {%- endif %}
    {{- content }}
    {%- for call in message.tool_calls or [] %}
      {{- '\\n<tool_call>\\n{"name": "' ~ call.function.name ~ '", "arguments": ' }}
      {{- call.function.arguments if call.function.arguments is string
          else call.function.arguments | tojson }}
      {{- '}\\n</tool_call>' }}
    {%- endfor %}
    {{- '<|im_end|>\\n' }}
  {%- elif message.role == 'tool' %}
    {%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}
      {{- '<|im_start|>user' }}
    {%- endif %}
    {{- '\\n<tool_response>\\n' ~ content ~ '\\n</tool_response>' }}
    {%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}
      {{- '<|im_end|>\\n' }}
    {%- endif %}
  {%- else %}
    {{- '<|im_start|>' ~ message.role ~ '\\n' ~ content ~ '<|im_end|>\\n' }}
  {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
  {{- '<|im_start|>assistant\\n' }}
  {%- if enable_thinking is defined and enable_thinking is false %}
    {{- '<think>\\n\\n</think>\\n\\n' }}
  {%- endif %}
{%- endif %}
"""
HEADERS = """\
{{- bos_token }}
{%- if not date_string is defined %}{%- set date_string = strftime_now('%d %b %Y') %}{%- endif %}
{%- if messages[0]['role'] == 'system' %}
  {%- set first = messages[0]['content'] | trim %}{%- set messages = messages[1:] %}
{%- else %}{%- set first = '' %}{%- endif %}
{{- '<|start_header_id|>system<|end_header_id|>\\n\\nToday: ' ~ date_string ~ '\\n' ~ first }}
{%- if tools is not none %}
  {%- for t in tools %}{{- t | tojson(indent=4) }}{{- '\\n\\n' }}{%- endfor %}
{%- endif %}
{{- '<|eot_id|>' }}
{%- for message in messages %}
  {%- if not (message.role == 'tool' or 'tool_calls' in message) %}
    {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' }}
    {{- message['content'] | trim + '<|eot_id|>' }}
  {%- elif 'tool_calls' in message %}
    {%- if not message.tool_calls | length == 1 %}
      {{- raise_exception('This model makes one call at once!') }}
    {%- endif %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
    {{- message.tool_calls[0].function | tojson }}{{- '<|eot_id|>' }}
  {%- else %}
    {{- '<|start_header_id|>ipython<|end_header_id|>\\n\\n' }}
    {{- message.content | tojson if message.content is mapping or message.content is iterable
        else message.content }}{{- '<|eot_id|>' }}
  {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
  {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""
INSTRUCTIONS = """\
{%- if messages[0]["role"] == "system" %}
    {%- set system = messages[0]["content"] %}{%- set rest = messages[1:] %}
{%- else %}{%- set rest = messages %}{%- endif %}
{{- bos_token }}
{%- for message in rest %}
    {%- if message["role"] == "user" %}
        {%- if loop.last and system is defined %}
            {{- "[INST] " + system + "\\n\\n" + message["content"] + "[/INST]" }}
        {%- else %}{{- "[INST] " + message["content"] + "[/INST]" }}{%- endif %}
    {%- elif message.tool_calls is defined and message.tool_calls is not none %}
        {{- "[TOOL_CALLS][" }}
        {%- for call in message.tool_calls %}
            {%- set out = call.function | tojson %}{{- out[:-1] }}
            {{- ', "id": "' + call.id + '"}' }}{{- ", " if not loop.last else "]" + eos_token }}
        {%- endfor %}
    {%- elif message["role"] == "assistant" %}{{- " " + message["content"] + eos_token }}
    {%- elif message["role"] == "tool" %}
        {{- '[TOOL_RESULTS]{"content": ' + message.content | string + "}[/TOOL_RESULTS]" }}
    {%- else %}{{- raise_exception("Only user, assistant, tool and a first system message!") }}
    {%- endif %}
{%- endfor %}
"""
TURNS = """\
{{ bos_token }}{% if messages[0]['role'] == 'system' %}
{% if messages[0]['content'] is string %}{% set first = messages[0]['content'] + '\\n\\n' %}
{% else %}{% set first = messages[0]['content'][0]['text'] + '\\n\\n' %}{% endif %}
{% set rest = messages[1:] %}{% else %}{% set first = '' %}{% set rest = messages %}{% endif %}
{% for message in rest %}
{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
{{ raise_exception('Roles must alternate') }}{% endif %}
{% set role = 'model' if message['role'] == 'assistant' else message['role'] %}
{{ '<start_of_turn>' + role + '\\n' + (first if loop.first else '') }}
{% if message['content'] is string %}{{ message['content'] | trim }}
{% else %}{% for item in message['content'] %}
{% if item['type'] == 'image' %}{{ '<image>' }}
{% elif item['type'] == 'text' %}{{ item['text'] | trim }}{% endif %}{% endfor %}{% endif %}
{{ '<end_of_turn>\\n' }}{% endfor %}
{% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}
"""
CHANNELS = """\
{%- macro render(spec) -%}
  {%- if spec.type is string %}{{- spec.type }}
  {%- else %}{{- spec.type | join(' | ') }}{%- endif -%}
{%- endmacro -%}
<|start|>system<|message|>Date: {{ strftime_now('%Y-%m-%d') }}
Reasoning: {{ reasoning_effort | default('medium') }}<|end|>
{%- if tools %}
  {{- '<|start|>developer<|message|>namespace functions {\\n' }}
  {%- for tool in tools %}
    {{- '// ' ~ tool.function.description ~ '\\ntype ' ~ tool.function.name ~ ' = (_: {\\n' }}
    {%- for name, spec in tool.function.parameters.properties.items() %}
      {{- name ~ ': ' ~ render(spec) ~ ',\\n' }}
    {%- endfor %}
    {{- '}) => any;\\n' }}
  {%- endfor %}
  {{- '}<|end|>' }}
{%- endif %}
{%- set last = namespace(name=none) %}
{%- for message in messages %}
  {%- if message.role == 'assistant' %}
    {%- if 'tool_calls' in message %}
      {%- if 'thinking' in message %}
        {{- '<|start|>assistant<|channel|>analysis<|message|>' ~ message.thinking ~ '<|end|>' }}
      {%- endif %}
      {%- set call = message.tool_calls[0].function %}{%- set last.name = call.name %}
      {{- '<|start|>assistant to=functions.' ~ call.name ~ '<|message|>' }}
      {{- call.arguments | tojson ~ '<|call|>' }}
    {%- elif loop.last and not add_generation_prompt %}
      {%- if 'thinking' in message %}
        {{- '<|start|>assistant<|channel|>analysis<|message|>' ~ message.thinking ~ '<|end|>' }}
      {%- endif %}
      {{- '<|start|>assistant<|channel|>final<|message|>' ~ message.content ~ '<|return|>' }}
    {%- else %}
      {{- '<|start|>assistant<|channel|>final<|message|>' ~ message.content ~ '<|end|>' }}
      {%- set last.name = none %}
    {%- endif %}
  {%- elif message.role == 'tool' %}
    {%- if last.name is none %}{{- raise_exception('A result without a call!') }}{%- endif %}
    {{- '<|start|>functions.' ~ last.name ~ ' to=assistant<|message|>' }}
    {{- message.content | tojson ~ '<|end|>' }}
  {%- else %}{{- '<|start|>' ~ message.role ~ '<|message|>' ~ message.content ~ '<|end|>' }}
  {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|start|>assistant{%- endif %}
"""
DOCUMENTS = """\
{%- if documents %}
<|start_of_role|>documents<|end_of_role|>
{%- for document in documents %}
{{ loop.index0 }}: {{ document | tojson(sort_keys=true, separators=(',', ':')) }}
{% endfor %}
<|end_of_text|>
{%- endif %}
{%- for message in messages %}
  {%- if message.role == 'system' %}{%- continue %}{%- endif %}
  {{- '<|start_of_role|>' + message['role'] + '<|end_of_role|>' }}
  {%- generation %}{{- message['content'] if message['role'] == 'assistant' else '' }}
  {%- endgeneration %}
  {%- if message['role'] != 'assistant' %}{{- message['content'] }}{%- endif %}
  {%- for call in message.get('tool_calls', []) %}
    {%- for name, value in call.function.arguments | dictsort %}
      {{- '<' ~ name ~ '>' ~ (value if value is string else value | tojson) ~ '</' ~ name ~ '>' }}
    {%- endfor %}
  {%- endfor %}
  {{- '<|end_of_text|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|start_of_role|>assistant<|end_of_role|>' }}{%- endif %}
"""
ROLES = """\
{% for message in messages %}
{{ '<|' + message['role'] + '|>\\n' + message['content'] + '<|end|>\\n' }}{% endfor %}
{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% else %}{{ eos_token }}{% endif %}
"""
OWN = {
    "reasoning": REASONING,  # As Qwen3's.
    "headers": HEADERS,  # As Llama 3.1's.
    "instructions": INSTRUCTIONS,  # As Mistral's.
    "turns": TURNS,  # As Gemma's.
    "channels": CHANNELS,  # As gpt-oss'.
    "documents": DOCUMENTS,  # As Granite's and Command-R's.
    "roles": ROLES,  # As Phi's.
}


def read_templates() -> dict[str, str]:
    """Return all templates by name."""
    return OWN | {path.stem: path.read_text() for path in sorted(FOLDER.glob("*.jinja"))}
