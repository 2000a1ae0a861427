"""Chat templates as models have them: what each does with roles that it does not expect."""

DROPS_OTHERS = """
{%- for m in messages %}
    {%- if m.role == 'system' %}
        {{- '[sys]' + m.content + '\\n' }}
    {%- elif m.role == 'user' %}
        {{- '[user]' + m.content + '\\n' }}
    {%- elif m['role'] == 'assistant' %}
        {{- '[bot]' + m.content + '\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '[bot]' }}{% endif %}
"""
RAISES_ON_OTHERS = """
{%- for m in messages -%}
{%- if m.role not in ['system', 'user', 'assistant'] -%}
{{ raise_exception('Only system, user and assistant roles are supported, not ' + m.role) }}
{%- endif -%}
[{{ m.role }}]{{ m.content }}
{%- endfor -%}
"""
REFUSES_SYSTEM = """
{%- if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}
{%- for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}
"""
ALTERNATES = """
{%- if messages[0].role == 'system' %}
    {%- set system, rest = messages[0].content, messages[1:] %}
{%- else %}
    {%- set system, rest = '', messages %}
{%- endif %}
{%- for m in rest %}
    {%- if (m.role == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception('Roles must alternate user/assistant/user/assistant/...') }}
    {%- endif %}
    {%- if m.role == 'user' and loop.first %}[INST] {{ system ~ '\\n\\n' if system }}{{ m.content }} [/INST]
    {%- elif m.role == 'user' %}[INST] {{ m.content }} [/INST]
    {%- else %} {{ m.content }}{{ eos_token }}
    {%- endif %}
{%- endfor %}
"""
