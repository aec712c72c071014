"""chat.json: chat templates in the forms that checkpoints have, single expressions and statements,
conversations, and what Jinja as transformers sets it up makes of them. text null: the template
raises an error.

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

# One expression or statement each: what Python and Jinja make of it.
EXPRESSIONS = [
    "{{ 'a\u00e4\"\\n</s>' | tojson }}{{ [1, 'b', none, true] | tojson }}{{ {'b': 1, 'a': {'c': [] } } | tojson }}{{ 5 | tojson }}",
    "{{ {}.a | default('x') }}{{ none.a | default('y') }}",
    "{{ 'abc'[0:1] }}{{ range(3) | list | length }}{{ range(3) | last }}",
    "{{ [1] == [1] }}{{ [1] == [2] }}{{ 'abc'.strip() == 'abc' }}",
    "{{ ' a b '.strip() }}|{{ ' a b '.lstrip() }}|{{ ' a b '.rstrip() }}|{{ '' | trim }}|{{ nothing | trim }}|",
    "{{ '\u3000\u00a0a\u2003b\u0085 \u200b'.strip() }}|{{ '\u00a0' | trim }}|{{ '\u001c\u001fa\u001e'.strip() }}|",
    "{{ 'aBc' | upper }}{{ 'aBc' | lower }}{{ 'aBc dEf' | capitalize }}{{ ''.upper() }}{{ 'hELLO'.capitalize() }}",
    "{{ true | upper }}{{ none | lower }}{{ 12 | capitalize }}",
    "{{ 'abc' | length }} {{ '\u00e4\u00f6\u00fc\u4e16' | length }} {{ '' | count }} {{ [1, 2] | length }} {{ {'a': 1} | count }}",
    "{{ nothing | length }}",
    "{{ 5 | length }}",
    "{{ none | length }}",
    "{{ 12 | string ~ true | string ~ none | string }}|{{ nothing | string }}|{{ ('a' | string) + 'b' }}",
    "{{ 'abc'.startswith('ab') }}{{ 'abc'.startswith('abcd') }}{{ 'abc'.endswith('bc') }}{{ 'abc'.endswith('') }}{{ ''.startswith('') }}",
    "{{ 'abc'.startswith(1) }}",
    "{{ 'a,b,,c'.split(',') | length }}{{ 'a,b,,c'.split(',')[1] }}{{ ''.split(',') | length }}{{ 'a--b'.split('--')[1] }}",
    "{{ 'a,b,c'.split(',', 1)[1] }}",
    "{{ 'a,b,c'.split(',', 1) | length }}|{{ 'a,b,c'.split(',', 0)[0] }}|{{ 'a,b,c'.split(',', -1) | length }}",
    "{{ 'a b  c'.split() | length }}",
    "{{ ' a\u3000b  c '.split() | length }}",
    "{{ 'abc'.split('') }}",
    "{{ 'abc'.replace('b', 'xy') }}{{ 'aaa'.replace('a', '') }}|{{ 'aaaa' | replace('aa', 'b') }}",
    "{{ 'abab'.replace('a', 'x', 1) }}",
    "{{ 'abab' | replace('a', 'x', 1) }}",
    "{{ 'a' ~ 1 ~ true ~ none ~ nothing }}|",
    "{{ 'a' + 1 }}",
    "{{ 1 + 'a' }}",
    "{{ 'abc'[1:] }}{{ 'abc'[:-1] }}{{ 'abc'[1:2] }}{{ 'abc'[5:] }}|{{ 'abc'[-9:2] }}|{{ 'abc'[2:1] }}|{{ 'abc'[:] }}",
    "{{ 'b' in 'abc' }}{{ '' in 'abc' }}{{ 'ac' not in 'abc' }}",
    "{{ 1 in 'abc' }}",
    "{{ 'a' in 5 }}",
    "{{ 'a' in none }}",
    "{{ 'a' in nothing }}{{ nothing in [1] }}{{ nothing in [nothing] }}",
    "{{ nothing in 'abc' }}",
    "{{ 'abc' | first }}{{ 'abc' | last }}",
    "{{ 'abc' | list | length }}",
    "{{ 'a' < 'b' }}{{ 'B' < 'a' }}{{ '\u00e4' > 'z' }}{{ 'a' <= 'a' }}{{ 'a' >= 'b' }}{{ 'a' > 'a' }}",
    "{{ 'a' < 1 }}",
    "{{ none < 1 }}",
    "{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 // -2 }} {{ 7 % -3 }} {{ 2 - 5 }} {{ 3 * -4 }}",
    "{{ 6 // -1 }}",
    "{{ 1 // 0 }}",
    "{{ true + true }} {{ true * 5 }} {{ false == 0 }} {{ true == 1 }} {{ 1 == '1' }}",
    "{{ -(3) }} {{ - 3 }} {{ not 3 }} {{ not 0 }} {{ not '' }} {{ not 'a' }} {{ not [] }} {{ not {} }} {{ not none }}",
    "{{ 1 < 2 }}{{ 2 <= 1 }}{{ 2 > true }}{{ 1 >= 1 }}",
    "{{ 1 < 2 and 2 < 3 or false }}{{ false or 'x' }}{{ '' and 'x' }}|{{ 0 or [] or 'y' }}{{ 1 and 2 }}",
    "{{ 1 < 2 < 3 }}{{ 3 > 2 > 2 }}",
    "{{ ([1] + [2, 3]) | length }}{{ ([1] + [2, 3])[2] }}{{ ([] + []) | length }}",
    "{{ [1] + 2 }}",
    "{{ [1, 2] + 'a' }}",
    "{{ [1, 2, 3] | first }}{{ [1, 2, 3] | last }}{{ [] | first }}|{{ [] | last }}|{{ [] | first is defined }}",
    "{{ {'a': 1} | first }}{{ {'a': 1, 'b': 2} | last }}",
    "{{ 5 | first }}",
    "{{ nothing | first }}|",
    "{{ [3, 1][0] }}{{ [3, 1][-2] }}{{ [3, 1][5] }}|{{ [3, 1][-5] }}|{{ [3, 1]['a'] }}|{{ [3, 1].b }}",
    "{{ [1, 2, 3, 4][1:3] | length }}{{ [1, 2, 3, 4][::-1][0] }}{{ [1, 2, 3][2::-1] | last }}{{ [1, 2, 3][-1::-1][0] }}",
    "{{ [1, 2, 3][0:-1] | last }}{{ [1, 2, 3][-2:] | first }}{{ [1, 2, 3][9:] | length }}{{ [1, 2, 3][:-9] | length }}",
    "{{ [1, 2, 3][9::-1] | length }}{{ [1, 2, 3][1:-9:-1] | length }}{{ [1, 2, 3][-9::-1] | length }}{{ [1, 2, 3][:0:-1] | length }}",
    "{{ 1 in [1, 2] }}{{ true in [1] }}{{ '1' in [1] }}{{ [1] in [[1]] }}{{ none in [none] }}",
    "{{ 'a' in {'a': 1} }}{{ 'b' in {'a': 1} }}{{ 1 in {'a': 1} }}",
    "{{ {'a': 1}.a }}{{ {'a': 1}['a'] }}{{ {'a': 1}.b }}|{{ {'a': 1}.b is defined }}",
    "{{ {'a': 1}.get('a') }}{{ {'a': 1}.get('b') }}{{ {'a': 1}.get('b', 'c') }}{{ {'a': none}.get('a', 'c') }}",
    "{{ 'abc'.get('a') }}",
    "{{ [1].get(0) }}",
    "{% for k, v in {'a': 1, 'b': 'c'}.items() %}{{ k }}={{ v }};{% endfor %}{% for k, v in {'z': 1} | items %}{{ k }}{% endfor %}",
    "{% for k, v in 'abc'.items() %}x{% endfor %}",
    "{% for k, v in 'abc' | items %}x{% endfor %}.",
    "{% for k in {'a': 1, 'b': 2} %}{{ k }}{% endfor %}",
    "{% for c in 'abc' %}{{ c }}{% endfor %}",
    "{% for c in nothing %}{{ c }}{% else %}none{% endfor %}",
    "{% for c in none %}{{ c }}{% endfor %}",
    "{% for c in 5 %}{{ c }}{% endfor %}",
    "{% for a, b in [[1, 2], [3, 4]] %}{{ a }}-{{ b }} {% endfor %}",
    "{% for a, b in [[1, 2, 3]] %}{{ a }}{% endfor %}",
    "{% for a, b in [1] %}{{ a }}{% endfor %}",
    "{{ [1, 'a', none, {'b': true}] == [1, 'a', none, {'b': true}] }}{{ {'a': 1} == {'a': 2} }}{{ [1] != [2] }}{{ none == false }}",
    "{{ nothing == nothing }}{{ nothing == none }}{{ nothing != 1 }}",
    "{{ nothing | tojson }}",
    "{{ '\u007f\u2028\\\\/\\t' | tojson }}",
    "{{ nothing | default('x') }}{{ none | default('x') }}{{ '' | default('x') }}|{{ '' | default('x', true) }}{{ 'y' | default('x', true) }}{{ none | default('z', true) }}{{ 0 | default(3, false) }}",
    "{{ nothing | default }}|",
    "{{ nothing.a | default('x') }}",
    "{{ {}.a.b | default('x') }}",
    "{{ 1 is number }}{{ true is number }}{{ 'a' is number }}{{ none is number }}{{ nothing is number }}",
    "{{ 1 is integer }}{{ true is integer }}{{ true is boolean }}{{ 1 is boolean }}{{ 'a' is integer }}",
    "{{ 1 is true }}{{ true is true }}{{ false is false }}{{ 0 is false }}{{ none is false }}",
    "{{ 'a' is string }}{{ 1 is string }}{{ nothing is string }}{{ none is string }}",
    "{{ {} is mapping }}{{ [] is mapping }}{{ 'a' is mapping }}{{ nothing is mapping }}",
    "{{ [] is sequence }}{{ 'a' is sequence }}{{ {} is sequence }}{{ 1 is sequence }}{{ nothing is sequence }}{{ none is sequence }}",
    "{{ [] is iterable }}{{ 'a' is iterable }}{{ {} is iterable }}{{ 1 is iterable }}{{ nothing is iterable }}{{ none is iterable }}",
    "{{ none is none }}{{ nothing is none }}{{ 0 is none }}{{ none is not none }}{{ none is defined }}{{ nothing is undefined }}{{ 0 is not undefined }}",
    "{{ not nothing is defined }}{{ 1 is defined and nothing is not defined }}",
    "{% set x = 1 %}{% for i in range(3) %}{% set x = x + i %}{{ x }}{% endfor %}{{ x }}",
    "{% for i in range(4) if i % 2 %}{{ i }}{{ loop.first }}{{ loop.last }}{{ loop.revindex }}{{ loop.revindex0 }}{% endfor %}",
    "{% for i in range(2) %}{% for j in range(2) %}{{ loop.index }}{% endfor %}{{ loop.index0 }}{% endfor %}",
    "{% for i in [] %}{% else %}empty{% endfor %}{% if false %}{% elif none %}{% elif [] %}{% else %}else{% endif %}",
    "{% for i in [1, 2, 3] %}{{ loop.previtem }}{{ loop.nextitem }}{% if loop.nextitem is not defined %}!{% endif %}{% endfor %}",
    "{{ 'a' if true }}{{ 'b' if false }}|{{ 'c' if false else 'd' if false else 'e' }}",
    "{{ range(5)[1] }}",
    "{{ messages[0].role }}{{ messages[0]['content'] | length }}{{ messages[5] }}|{{ messages[0].nothing }}|",
    "{{ messages[5].role }}",
    "{{ messages[0].nothing.more }}",
    "{{ raise_exception('stop') }}",
    "{{ raise_exception(1) }}",
    "{{ bos_token }}{{ eos_token }}{{ add_generation_prompt }}",
    "{# comment #}a\n  {%- if true -%}  b  {%- endif -%}  c\n{% if true %}\nd\n{% endif %}\ne",
    "  {% if true %}x{% endif %}  \n  {{ 'y' }}  \n  {# c #}\nz\n",
    "{{- ' a ' -}}  b  {{- 'c' }}\n",
    "{{ 3 > 2 > 1 }}{{ 2 == 2 == 2 }}{{ 1 < 3 > 2 }}{{ 1 in [1] == true }}{{ 2 not in [1] != [2] }}{{ 1 > 2 < 3 }}",
    "{{ 1 == none is none }}|{{ 'a' ~ 'b' is string }}|{{ 1 + 2 is number }}|{{ -1 is number }}|{{ -1 | string }}",
    "{{ 1 ~ 2 * 3 }}{{ 'a' + 1 ~ 'b' }}{{ 2 * 3 ~ 1 }}",
    "{{ 1 + 2 ~ 3 }}",
    "{{ [1] == [true] }}{{ {'a': 1} == {'a': true} }}{{ [nothing] == [{}] }}{{ [nothing] == [nothing] }}{{ [[1], 2] == [[1], 3] }}{{ [1] == [1, 2] }}",
    "{{ {'a': 1} == {'b': 1} }}{{ {'a': 1} == {'a': 1, 'b': 2} }}{{ [1] == {'a': 1} }}{{ {} == 1 }}{{ {'a': none} == {'b': none} }}{{ [true] in [[1]] }}",
    "{{ 'abc'[0] }}{{ 'abc'[-1] }}{{ 'abc'[5] }}|{{ 'abc'[-4] }}|{{ '\u00e4\u00f6'[1] }}|{{ [1, 2][true] }}{{ 'abc'[false] }}{{ 'abc'['a'] }}|{{ {'a': 1}[0] }}|",
    "{{ 'abc'[true:] }}{{ [1, 2][true:] | length }}{{ 'abc'[none:2] }}{{ 'abc'[:none] }}{{ [1, 2][none:-1:-1] | length }}",
    "{{ 'abc'[nothing:] }}",
    "{{ {'items': 1}['items'] }}{{ [1,][0] }}{{ {'a': 1,}.a }}",
    "{{ range(-1) | length }}{{ range(0) | length }}",
    "{{ range('a') }}",
    "{{ raise_exception(nothing) }}",
    "{{ none.upper() }}",
    "{{ (12).lower() }}",
    "{{ true.capitalize() }}",
    "{{ messages[0].get('role').upper() }}{{ 12 | upper }}{{ 'a' is string and true }}{{ 1 is none or 2 }}",
    "{{ '\u2028\u2029a\u0085'.strip() }}|{{ '\u0001\u000ea\u007f'.strip() | length }}|{{ '\u001c\u0020a\u001f'.lstrip() | length }}|",
    "{{ 'a' | replace('a', 'b', 'c') }}",
    "{% generation %}a{{ 1 == nothing }}{% endgeneration %}{{ nothing == [] }}",
    "{{ {} in {'a': 1} }}",
    "{{ [1] in {'a': 1} }}",
    "{{ nothing in {'a': 1} }}{{ none in {'a': 1} }}",
    "{{ 'ab'[1:9] }}{{ 'ab'[9:1] }}|{{ [1, 2, 3][5:-9:-1] | length }}{{ [1, 2, 3][-9:9] | length }}",
    "{{ 'a\\\\b\\'c\\\"\\r|\\t|' }}{{ \"it's\" }}{{ 'a' if true is defined else 'b' }}",
    "{{ 9223372036854775807 - 1 }}{{ 0 - 9223372036854775807 }}{{ 7 % -1 }}{{ (0 - 7) % -1 }}{{ -6 % 3 }}{{ 6 % -4 }}",
]

# Of values that a message may have.
MEMBERS = [
    "{{ messages[0].half is number }}{{ messages[0].half is integer }}{{ messages[0].half is string }}{{ messages[0].zero is number }}",
    "{% if messages[0].half %}true{% endif %}{% if messages[0].zero %}true{% else %}false{% endif %}",
    "{{ messages[0].half == messages[0].half }}{{ messages[0].half != 1 }}{{ messages[0].one == 1 }}",
    "{{ messages[0].half > 1 }}{{ 1 < messages[0].half }}{{ messages[0].half <= 1 }}",
    "{{ messages[0].half | tojson }}",
    "{{ messages[0].tags | length }}{{ messages[0].tags[1] }}{{ messages[0].flag }}{{ messages[0].gone }}{{ messages[0].gone is none }}",
    "{{ messages[0] | tojson }}",
    "{{ [messages[0].one] == [1] }}{{ messages[0].zero == false }}{{ messages[0].half in [messages[0].half] }}",
]

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
VALUES = [{"role": "user", "content": "x", "half": 1.5, "zero": 0.0, "one": 1.0, "flag": True,
           "gone": None, "tags": ["a", "b"]}]
for sources, messages in (EXPRESSIONS, CONVERSATIONS[0]), (MEMBERS, VALUES):
    for source in sources:
        TEMPLATES[source] = source
        cases.append({"template": source, "messages": messages, "add_generation_prompt": True,
                      "text": render(source, messages, True)})
with open(sys.argv[1] + "/chat.json", "w") as file:
    json.dump({"templates": TEMPLATES, "cases": cases}, file, indent=1, ensure_ascii=False)
    file.write("\n")
