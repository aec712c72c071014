"""chat.json: chat templates in the forms that checkpoints have, conversations, and what Jinja as
transformers sets it up makes of them. text null: the template raises an error.

    python3 chat.py OUT
"""
import json
import sys

from transformers.utils.chat_template_utils import render_jinja_template

TEMPLATES = {
    "chatml": "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou help.<|im_end|>\n' }}{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
    "headers": "{% set loop_messages = messages %}{% for message in loop_messages %}"
    "{% set content = '<|h|>' + message['role'] + '<|/h|>\n\n'+ message['content'] | trim + '<|e|>' %}"
    "{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|h|>assistant<|/h|>\n\n' }}{% endif %}",
    "turns": "{{ bos_token }}{% for message in messages %}"
    "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}{% if message['role'] == 'user' %}"
    "{{ '[INST] ' + message['content'] + ' [/INST]' }}{% elif message['role'] == 'assistant' %}"
    "{{ message['content'] + eos_token + ' ' }}{% else %}{{ raise_exception('which role?') }}"
    "{% endif %}{% endfor %}",
    "system first": "{%- if messages[0]['role'] == 'system' -%}\n"
    "    {%- set system = messages[0]['content'] -%}\n"
    "    {%- set rest = messages[1:] -%}\n"
    "{%- else -%}\n"
    "    {%- set system = 'none' -%}\n"
    "    {%- set rest = messages -%}\n"
    "{%- endif -%}\n"
    "<<SYS>>{{ system | upper }}<</SYS>>\n"
    "{%- for m in rest %}\n"
    "    {%- if m.role == 'user' and loop.last %}\n"
    "[LAST] {{ m.content }}\n"
    "    {%- elif m.role in ['user', 'assistant'] %}\n"
    "[{{ m.role[0:1] }}] {{ m['content'].strip() }}\n"
    "    {%- endif %}\n"
    "{%- endfor %}\n",
    "lines": "{# a comment #}\n"
    "{% for message in messages %}\n"
    "  {% if message.role is defined and message.name is not defined %}\n"
    "  * {{ message.role ~ ': ' ~ message.content | length }}\n"
    "  {% endif %}\n"
    "{% endfor %}\n"
    "{{ messages | length }} in all{{ ' and so on' if add_generation_prompt else '' }}\n",
    "namespace": "{% set ns = namespace(last=-1, found=false) %}"
    "{% for message in messages[::-1] %}{% set i = messages | length - 1 - loop.index0 %}"
    "{% if not ns.found and message['role'] == 'user' %}{% set ns.found = true %}"
    "{% set ns.last = i %}{% endif %}{% endfor %}"
    "{{ ns.last }} {{ ns.found }} {{ none is none }}|"
    "{% for m in messages if m.role != 'system' %}{{ loop.index }}/{{ loop.length }} "
    "{{ m.content.split(' ')[-1] }};{% else %}nobody{% endfor %}"
    "{{ undefined_thing | default('fallback') }}{{ messages[-1].content.startswith('H') }}",
    "lookbehind": "{% for m in messages %}{% if loop.previtem is defined %}"
    "{{ loop.previtem.role }}>{% endif %}{{ m.role }}{% if not loop.last %}, {% endif %}"
    "{% endfor %}{% set d = {'a': 1, 'b': [1, 2, 3]} %}{{ d.a + d['b'][2] * 2 - 7 // 2 }}"
    "{{ 'x' in 'xyz' }}{{ 5 not in d.b }}{{ (1 < 2) and (2 >= 2) }}{{ 'A' if false else 'B' }}"
    "{{ messages[0].content.replace('l', 'L') }}{{ '{{ not a tag }}' }}",
}

CONVERSATIONS = [
    [{"role": "user", "content": "Hello"}],
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": " Hi there \n"}],
    [
        {"role": "user", "content": "1+1?"},
        {"role": "assistant", "content": "2"},
        {"role": "user", "content": "and 2+2?"},
    ],
    [{"role": "assistant", "content": "Good day"}, {"role": "user", "content": "Grüße, 世界"}],
]


def render(template, messages, prompt):
    try:
        texts, _ = render_jinja_template(
            [messages], chat_template=template, add_generation_prompt=prompt,
            bos_token="<s>", eos_token="</s>")
        return texts[0]
    except Exception:
        return None


cases = [
    {"template": name, "messages": messages, "add_generation_prompt": prompt,
     "text": render(TEMPLATES[name], messages, prompt)}
    for name in TEMPLATES for messages in CONVERSATIONS for prompt in (True, False)
]
with open(sys.argv[1] + "/chat.json", "w") as file:
    json.dump({"templates": TEMPLATES, "cases": cases}, file, indent=1, ensure_ascii=False)
    file.write("\n")
