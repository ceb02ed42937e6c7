#!/usr/bin/env python3
"""Writes tests/data/jinja/*.json: small templates and what Python's jinja2 makes of them.

Needs `pip install jinja2` (3.1). Run from anywhere: python3 tests/tools/make_jinja_cases.py
A case is {"template": ..., "text": ...} or {"template": ..., "error": true}; all see the variables of VARIABLES below.
"""

import copy
import datetime
import json
import pathlib

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

VARIABLES = {
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "  Grüße, 世界 🌍!  "},
        {"role": "assistant", "content": None, "tool_calls": [{"name": "f", "arguments": {"x": 1, "y": [1.5, True, None]}}]},
    ],
    "tools": None,
    "users": [
        {"name": "bob", "age": 30, "tags": ["a"], "address": {"city": "Ulm"}},
        {"name": "Ann", "age": 25, "tags": [], "address": {"city": "Bonn"}},
        {"name": "carl", "age": 30, "tags": ["b", "c"], "address": {}},
    ],
    "text": "Hello, World",
    "words": "the quick  brown\tfox",
    "lines": "one\ntwo\r\n\nthree",
    "html": "<b>&\"'</b>",
    "numbers": [3, 1, 2],
    "mixed": [1, "a", None, 2.5, True, [1, 2], {"k": "v"}],
    "nested": {"b": {"c": [10, 20, 30]}, "a": 1, "items": "shadow", "B": 2},
    "empty": "",
    "zero": 0,
    "pi": 3.14159,
    "big": 1e16,
    "tiny": 0.00001,
    "yes": True,
    "no": False,
    "nothing": None,
}

EXPRESSIONS = {
    "literals": r"""
1 | 1.0 | 1e3 | 1.5e-7 | 0x1F | 0b101 | 0o17 | 1_000 | 'a' | "b" | 'it\'s' | "q\"q" | 'a\nb\tc\\' | '\x41\u00e9\U0001F30D' | 'a' 'b'
true | True | false | False | none | None | [] | [1, 'a'] | () | (1,) | (1, 2) | 1, 2 | {} | {'a': 1, 2: [3]} | {1: 'x', 1.0: 'y'} | [1, 2,]
1e16 | 1e15 | 123456789012345678 | 0.0001 | 0.00001 | 1e22 | 1e-10 | 100.0 | -0.0 | 2.5e10 | 1.7976931348623157e308 | 0.1 + 0.2
""",
    "operators": r"""
1 + 2 | 1 - 2 | 2 * 3 | 7 / 2 | 7 // 2 | -7 // 2 | 7 % 3 | -7 % 3 | 7 % -3 | 2 ** 10 | 2 ** -1 | 2 ** 3 ** 2 | -2 ** 2 | 7.5 // 2 | -7.5 % 2 | 1 + 2 * 3 - 4 / 2
(1 + 2) * 3 | 6 / 3 | 1 + 1.0 | true + 1 | - 5 | + 5 | --5 | not 1 | not not 1 | 1 ~ 2 | 'a' ~ 1 ~ none ~ 2.0 | 1 ~ 2 + 3 | 'a' + 'b' | [1] + [2] | (1,) + (2,)
'ab' * 3 | 3 * 'ab' | [0] * 3 | 'ab' * -1 | 1 == 1.0 | 1 == true | '1' == 1 | 1 != 2 | 1 < 2 < 3 | 1 < 3 < 2 | 3 > 2 >= 2 | 'a' < 'b' | 'a' < 'B' | [1, 2] < [1, 3]
(1, 2) == (1, 2) | [1] == (1,) | {'a': 1} == {'a': 1.0} | none == none | 1 in [1, 2] | 3 not in [1] | 'ell' in text | 'a' in nested | '' in '' | not 1 in [2] | 1 in range(3)
1 and 2 | 0 and 2 | 0 or 'x' | '' or none or [] | 1 or missing.x | 0 and missing.x | not 0 and 1 | 1 if yes | 1 if no | 1 if no else 2 | 1 if no else 2 if no else 3 | (1 if yes else 2) + 1
'x' if missing else 'y' | missing | missing or 'd' | missing ~ 'x' | [missing] | missing == missing2 | missing == '' | missing is defined | not missing | missing != 1
1 + 'a' | 'a' + 1 | none + 1 | missing + 1 | 1 / 0 | 1 // 0 | 1 % 0 | 1.0 / 0 | [1] + (1,) | 'a' - 'b' | -'a' | 'a' < 1 | none < 1 | missing < 1 | {} < {} | [] * 'a'
1 in 'abc' | 1 in 5 | 1 in none | 0 ** -1 | 10 // 3.0 | 1e308 * 10 | 5 % 3.5 | 9007199254740993 == 9007199254740992.0 | 3 < 2.5 | 0.5 == 1 / 2
""",
    "access": r"""
messages[0].role | messages[0]['role'] | messages[-1].role | messages[5] | messages[5] is defined | messages[0].nope | messages[0].nope is defined | messages[0].nope.x | messages.nope
nested.b.c[1] | nested['b']['c'][-1] | nested.a | nested.items is string | nested['items'] | nested.b.c.0 | numbers.0 | text[0] | text[-1] | text[50] | messages[1].content[2:7] | text[1:3]
text[::-1] | text[::2] | text[-3:] | text[:-3] | text[10:2:-3] | numbers[1:] | numbers[::-1] | numbers[:10] | numbers[-100:2] | (1, 2, 3)[1:] | range(10)[2:5] | range(5)[1] | [1, 2, 3][1:][0]
text[::0] | text['a'] | numbers['a'] | 5[0] | none.x | none[0] | 5 .x | text[1.5] | nested[[1]] is defined | nested[none] | nested[(1, 2)] | text[none:2] | numbers[true] | text[9223372036854775807] | text[:9223372036854775807:9223372036854775807] | zero[1:] | nothing[:2] | nested[1:] | yes[::-1] | (numbers|select)[1:]
nested.__class__ | text.__len__() | nested.pop('a') | numbers.append(1) | nested.update({}) | missing.__x__ | missing()() | text() | nested.a() | 5() | messages[0].get('role') | messages[0].get('x') | messages[0].get('x', 'd')
nested.keys() | nested.values() | nested.items() | nested.keys()|list | nested.copy() | numbers.index(2) | numbers.index(9) | numbers.count(1) | (1, 1).count(1) | nested.b.keys()|length | nested.items()[0] | nested.get() | messages[0].get('a', 1, 2)
""",
    "methods": r"""
'  a b '.strip() ~ '|' | 'xxaxx'.strip('x') | 'xya'.lstrip('yx') | 'axy'.rstrip('yx') | ' a '.lstrip() ~ '|' | ' a '.rstrip() ~ '|' | 'a'.strip(none) | '\u3000a\u2003'.strip()
words.split() | words.split(' ') | words.split(' ', 1) | words.split(none, 1) | words.rsplit(none, 1) | words.rsplit(' ', 1) | ''.split() | ''.split(',') | 'a,b,,c'.split(',') | 'a,b'.split(',', maxsplit=0) | 'a b '.split(none, 1) | ' a b '.rsplit(none, 0) | 'a'.split('')
lines.splitlines() | lines.splitlines(true) | ''.splitlines() | '\n'.splitlines() | 'a\u2028b\x0bc'.splitlines()
text.startswith('Hell') | text.startswith(('x', 'H')) | text.endswith('d') | text.endswith(('x', 'ld')) | text.startswith('W', 7) | text.endswith('o', 0, 5) | text.startswith('') | text.startswith('', 50) | text.startswith(1) | text.startswith(['H'])
text.upper() | text.lower() | 'hELLO wORLD'.title() | "it's 3rd".title() | 'hELLO'.capitalize() | 'aBc'.swapcase() | 'straße ǆ ΑΣ'.upper() | 'ÀÉ ΟΔΟΣ'.lower() | 'ßa'.capitalize() | 'éa éB'.title()
text.replace('l', 'L') | text.replace('l', 'L', 1) | text.replace('', '-') | 'é世'.replace('', '-') | text.replace('x', 'y') | text.replace('l', '') | 'aaa'.replace('aa', 'b') | 'aaa'.replace('a', 'b', 0) | text.replace('a')
', '.join(['a', 'b']) | ''.join([]) | '-'.join('abc') | '-'.join([1]) | '-'.join(nested) | text.find('o') | text.find('o', 5) | text.find('x') | text.rfind('o') | '世界'.find('界') | text.index('W') | text.index('x') | text.count('l') | text.count('l', 4) | 'aaa'.count('aa') | 'abc'.count('')
'prefix-x'.removeprefix('prefix-') | 'x.py'.removesuffix('.py') | 'a-b-c'.partition('-') | 'a-b-c'.rpartition('-') | 'abc'.partition('-') | 'a'.ljust(3, '.') | 'a'.rjust(3) ~ '|' | 'a'.center(4, '*') | 'ab'.center(5, '*') | '-5'.zfill(4) | 'abc'.zfill(2)
'12'.isdigit() | '1a'.isdigit() | ''.isdigit() | 'ab'.isalpha() | 'é1'.isalnum() | ' \t'.isspace() | 'AB1'.isupper() | 'ab1'.islower() | '1'.isupper() | '½'.isnumeric() | '½'.isdecimal() | '²'.isdigit() | (2.0).is_integer()
'{} {}'.format(1, 'a') | '{1} {0}'.format(1, 'a') | '{a} {b[0]}'.format(a=1, b=[2]) | '{0.name}'.format(users[0]) | '{:>5}|{:<5}|{:^5}'.format(1, 2, 3) | '{:05d} {:+d} {:x} {:#x} {:,}'.format(42, 42, 255, 255, 1234567) | '{:.2f} {:e} {:g} {:%}'.format(pi, pi, pi, 0.5) | '{!r} {!s}'.format('a', 'b') | '{{}}'.format() | '{:*^9}'.format('mid') | '{:.2}'.format('abc') | '{:{}}'.format('a', 4) ~ '|'
'{}'.format() | '{x}'.format(y=1) | '{'.format(1) | '}'.format(1) | '{:d}'.format('a') | '{0} {}'.format(1, 2) | '{:.3}'.format(2.0) | '{:08.3f}'.format(-pi) | '{}'.format(none) | '{:5}'.format(true) | '{:>{w}}'.format('a', w=3)
'%s %d' % ('a', 5) | '%s' % 5 | '%s' % [1] | '%5s|%-5s|' % ('a', 'b') | '%05d %+d %x %X %o %c' % (42, 42, 255, 255, 8, 'z') | '%.2f %e %g %%' % (pi, pi, pi) | '%(a)s' % {'a': 1} | '%r' % 'a' | '%.1s' % 'abc' | '%i' % 3.7 | '%*d' % (5, 3)
'%s %s' % ('a',) | '%s' % (1, 2) | '%d' % 'a' | '%y' % 1 | '%' % 1 | '%(a)s' % {} | '%s' % missing | '%s' % none | 'x' % [] | 'x' % 1
""",
    "filters_text": r"""
text|upper | text|lower | 'hello world-foo (bar)'|title | "it's"|title | 'hELLO'|capitalize | '  x '|trim ~ '|' | 'xxaxx'|trim('x') | missing|trim | 5|trim | 5|upper | text|replace('l', 'L') | text|replace('l', 'L', 1) | 5|replace(5, 6) | text|length | missing|length | none|length | 5|length | '世界🌍'|length
lines|indent | lines|indent(2) | lines|indent(2, true) | lines|indent(2, blank=true) | lines|indent('> ', true, true) | ''|indent | missing|indent | 5|indent | 'a'|center(5) ~ '|' | 'a'|string | 5|string | none|string | [1]|string | missing|string | text|wordcount | words|wordcount
html|e | html|escape | html|safe | html|e|e | html|forceescape | html|safe|e | (html|safe) + '<' | '<' + (html|safe) | (html|e)|upper | [html|safe] | (html|safe) ~ '<' | ('%s'|safe) % '<' | ('<{}>'|safe).format('<') | (html|safe)|tojson | 'a b/ü&'|urlencode | {'a b': 'ü/'}|urlencode
'the quick brown fox'|truncate(9) | 'the quick brown fox'|truncate(9, true) | 'the quick brown fox'|truncate(9, false, '', 0) | 'short'|truncate(3) | 'x'|truncate(2) | '%s-%s'|format('a', 1) | '%(a)s'|format(a=1) | '%s'|format(1, a=2)
missing|default('d') | missing|d | none|default('d') | none|default('d', true) | ''|d('e', boolean=true) | 0|default(1) | missing.x|default('d') | nested.nope|default('d') | nested.nope.x|default(1)
""",
    "filters_numbers": r"""
'5'|int | '5.7'|int | 'x'|int | 'x'|int(9) | ''|int | none|int | 5.9|int | -5.9|int | true|int | '0x1f'|int(0, 16) | '1f'|int(base=16) | '101'|int(0, 2) | ' 42 '|int | '1_000'|int | [1]|int | missing|int | '-7'|int | '+7'|int | '1e3'|int | 'inf'|int
'5'|float | '5.5'|float | 'x'|float | 'x'|float(1.5) | none|float | true|float | ' 1.5 '|float | '1e5'|float | missing|float | -5|abs | 5.5|abs | -5.5|abs | 'a'|abs | true|abs
2.5|round | 3.5|round | 2.675|round(2) | 42|round | 42.55|round(1, 'floor') | 42.55|round(1, 'ceil') | 42.1|round(method='ceil') | 1234.5|round(-2) | 'a'|round | 2.5|round(0, 'x') | 1e300|round | 0.5|round | 1.5|round|int
[1, 2, 3]|sum | []|sum | users|sum('age') | users|sum(attribute='age', start=10) | [1.5, 2]|sum | ['a']|sum | [[1], [2]]|sum(start=[]) | numbers|min | numbers|max | ['b', 'A', 'c']|min | ['b', 'A', 'c']|min(true) | users|max(attribute='age') | []|max | [1, 'a']|max
""",
    "filters_lists": r"""
numbers|join | numbers|join(', ') | users|join(', ', 'name') | users|join(', ', attribute='address.city') | missing|join(',') | 'abc'|join('-') | [none, 1.0, true]|join('|') | none|join | {'a': 1}|join
numbers|first | numbers|last | ''|first | []|first | []|last | text|first | text|last | none|first | missing|first | nested|first | 'é世'|last | range(3)|last | numbers|map('string')|first | numbers|map('string')|last
numbers|list | text[:3]|list | nested|list | missing|list | none|list | 5|list | numbers|reverse|list | text|reverse | numbers|reverse | nested|reverse|list | none|reverse | nested.items()|list | nested|items|list | missing|items|list | 5|items|list
numbers|sort | numbers|sort(reverse=true) | ['b', 'A', 'c']|sort | ['b', 'A', 'c']|sort(case_sensitive=true) | users|sort(attribute='age')|map(attribute='name')|list | users|sort(attribute='age,name')|map(attribute='name')|list | [1, 'a']|sort | mixed|sort | users|sort(attribute='age', reverse=true)|map(attribute='name')|list | [[2, 1], [1, 2]]|sort | nested|sort
nested|dictsort | nested|dictsort(true) | {'a': 2, 'b': 1}|dictsort(by='value') | {'a': 2, 'b': 1}|dictsort(reverse=true) | {'a': 1, 2: 1}|dictsort | {'a': 1}|dictsort(by='x') | none|dictsort | missing|dictsort
['a', 'B', 'b', 'A']|unique|list | ['a', 'A']|unique(true)|list | users|unique(attribute='age')|map(attribute='name')|list | [1, 1.0, true, '1']|unique|list | [[1]]|unique|list | [1, 2, 3]|batch(2)|list | [1, 2, 3]|batch(2, 0)|list | [1, 2, 3, 4, 5]|slice(2)|list | [1, 2, 3]|slice(2, 'x')|list
users|groupby('age')|list | users|groupby('address.city', default='?')|list | users|groupby('name') | ['a']|groupby('x')
users|map(attribute='name')|list | users|map(attribute='address.city')|list | users|map(attribute='nope', default='d')|list | ['a', 'b']|map('upper')|list | ['a', 'b']|map('replace', 'a', 'x')|list | [1, 2]|map('nope')|list | [1]|map|list | none|map('upper')|list | 5|map('upper')|list | missing|map('upper')|list | [[1, 2], [3]]|map('length')|list | users|map(attribute='tags')|map('join', '+')|list | [[1, 2]]|map(attribute=1)|list
[1, 2, 3, 4]|select('odd')|list | [1, 0, 2]|select|list | [1, 2, 3]|reject('odd')|list | [1, 0]|reject|list | users|selectattr('age', 'equalto', 30)|map(attribute='name')|list | users|selectattr('tags')|map(attribute='name')|list | users|rejectattr('tags')|map(attribute='name')|list | users|selectattr('address.city', 'defined')|list|length | [1, 2, 3]|select('>', 1)|list | [1, 2]|select('nope')|list | messages|selectattr('role', 'in', ['user', 'system'])|list|length | users|selectattr|list | none|select|list | ['a']|select('==', 'a')|list
users|map(attribute='age')|length | users|map(attribute='age')|tojson | (users|map(attribute='age'))[0] | users|attr('x') | nested|attr('a') | nested|attr('keys') is callable | numbers|count | range(3)|sum | range(0, 10, 3)|list | range(5, 0, -2)|list | range(0) | range(1, 4) | range() | range(1, 2, 0) | range('a') | range(3)|list|length
""",
    "tojson": r"""
mixed|tojson | nested|tojson | nested|tojson(indent=2) | nested|tojson(indent=0) | []|tojson(indent=2) | {}|tojson(indent=2) | [[]]|tojson(indent=2) | html|tojson | messages|tojson | messages|tojson(ensure_ascii=true) | messages[1].content|tojson(true) | '\x00\x1f\x7f\u2028\\/'|tojson | '\x7f'|tojson(true)
nested|tojson(sort_keys=true) | nested|tojson(separators=(',', ':')) | numbers|tojson(separators=(' ; ', '=')) | nested|tojson(indent='--') | nested|tojson(indent=2, separators=(', ', ': ')) | 1.0|tojson | 1e16|tojson | 1e-7|tojson | none|tojson | true|tojson | (1, 2)|tojson | {1: 2, none: 3, true: 4, 1.5: 5}|tojson
missing|tojson | range(3)|tojson | nested.keys()|tojson | users[0].keys|tojson | {(1, 2): 3}|tojson | [missing]|tojson | namespace()|tojson | {'a': 1, 2: 3}|tojson(sort_keys=true) | pi|tojson | 'é'|tojson | big|tojson | tiny|tojson
""",
    "printing": r"""
mixed | nested | users[0] | (1,) | ['it\'s', "q\"q", 'b\'"'] | ['\n\t\r\\\x00\x7f\u200b\xa0é世🌍\u2028'] | [1.0, 1e20, -0.0] | {none: true} | [()] | none | yes | pi | big | tiny | 1e-5 | 123456789.123456789 | 1/3 | 1e100 | [missing] | {'a': missing} | 5e-324 | range(3) | [range(2)] | namespace(a=1) | [1, [2, [3, {'x': (4,)}]]]
""",
    "tests": r"""
missing is defined | text is defined | missing is undefined | none is none | text is none | yes is boolean | 1 is boolean | yes is true | 1 is true | no is false | 0 is false | 1 is integer | true is integer | 1.0 is integer | 1.0 is float | 1 is float | 1 is number | true is number | '1' is number
text is string | 1 is string | nested is mapping | numbers is mapping | numbers is sequence | text is sequence | nested is sequence | 5 is sequence | missing is sequence | (1, 2) is sequence | range(2) is sequence | numbers is iterable | 5 is iterable | none is iterable | missing is iterable | nested.items() is sequence | numbers|map('string') is iterable | numbers|map('string') is sequence | namespace() is mapping
3 is odd | 4 is odd | 4 is even | -3 is odd | 2.0 is even | 'a' is odd | 6 is divisibleby 3 | 7 is divisibleby(3) | 6 is divisibleby 0 | 1 is sameas 1 | true is sameas true | 1 is sameas true | none is sameas none | 'a' is lower | 'A' is lower | 'A' is upper | '1' is upper | html|e is escaped | html is escaped
1 is eq 1 | 1 is equalto 2 | 1 is ne 2 | 1 is lt 2 | 1 is lessthan 2 | 2 is gt 1 | 2 is greaterthan 1 | 1 is le 1 | 1 is ge 1 | 1 is in [1, 2] | 'a' is in 'abc' | 3 is not in [1, 2] | 1 is not none | text is not string | not text is string | 1 is 1 | range is callable | text is callable | text.upper is callable | 'upper' is filter | 'x' is filter | 'odd' is test
1 is defined and 2 is defined | (1 is odd) and 1 | 1 is odd == true | 1 if 3 is odd else 2 | 5 is lt 6 and 7 is gt 6 | [1] is eq [1] | text is lt 1 | 1 is odd is even | 1 + 1 is even | -1 is odd | 'a' ~ 'b' is string
""",
    "functions": r"""
dict(a=1, b=2) | dict() | dict({'a': 1}, b=2) | dict([('a', 1)]) | dict([1]) | dict(1) | dict(**{'x': 1}) | namespace(a=1).a | namespace({'a': 1}).a | namespace(a=1)['a'] | namespace().x | namespace().x is defined | strftime_now('%Y-%m-%d') | strftime_now('%d %b %Y') | strftime_now('%A, %B %-d, %H:%M:%S %j %y %%') | raise_exception('no') | strftime_now()
cycler('a', 'b').next() | joiner('|')() | range(*[1, 4])|list | '{}{}'.format(*['a', 'b']) | '{a}'.format(**{'a': 1}) | dict(*[{'a': 1}], b=2) | range(**{'stop': 3}) | messages[0].get(*['role'])
""",
}

STATEMENTS = {
    "control": [
        "{% if yes %}a{% endif %}", "{% if no %}a{% else %}b{% endif %}", "{% if no %}a{% elif yes %}b{% elif yes %}c{% else %}d{% endif %}",
        "{% if missing %}a{% endif %}b", "{% if nothing is none and not zero %}a{% endif %}", "{% if 1, 2 %}a{% endif %}",
        "{% for x in numbers %}{{ x }}{% endfor %}", "{% for x in [] %}a{% else %}b{% endfor %}", "{% for x in missing %}a{% else %}b{% endfor %}",
        "{% for x in nothing %}{% endfor %}", "{% for x in 5 %}{% endfor %}", "{% for c in 'né世' %}[{{ c }}]{% endfor %}",
        "{% for k in nested %}{{ k }} {% endfor %}", "{% for k, v in nested.b.items() %}{{ k }}={{ v }}{% endfor %}", "{% for k, v in nested|dictsort %}{{ k }}={{ v }};{% endfor %}",
        "{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}", "{% for a, b in [1] %}{% endfor %}", "{% for a, b in [(1, 2, 3)] %}{% endfor %}",
        "{% for a, b in ['xy'] %}{{ a }}-{{ b }}{% endfor %}",
        "{% for x in numbers if x > 1 %}{{ loop.index }}/{{ loop.length }}:{{ x }} {% endfor %}", "{% for x in numbers if x > 9 %}a{% else %}none{% endfor %}",
        "{% for x in 'abcd' %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }} {% endfor %}",
        "{% for x in 'abc' %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }} {% endfor %}", "{% for x in 'abcd' %}{{ loop.cycle('o', 'e') }}{% endfor %}",
        "{% for x in [1, 1, 2] %}{{ loop.changed(x) }} {% endfor %}", "{% for x in 'ab' %}{% for y in 'cd' %}{{ loop.index }}{{ loop.depth }}{% endfor %}{{ loop.index }}{% endfor %}",
        "{% for x in [1, [2, [3]]] recursive %}{% if x is iterable %}({{ loop(x) }}){% else %}{{ x }}@{{ loop.depth }}{% endif %}{% endfor %}",
        "{% for x in [1] %}{{ loop([2]) }}{% endfor %}", "{{ loop is defined }}{{ loop }}", "{% for x in 'ab' %}{% endfor %}{{ x is defined }}{{ loop is defined }}",
        "{% for x in 'abcd' %}{% if x == 'c' %}{% break %}{% endif %}{{ x }}{% endfor %}", "{% for x in 'abcd' %}{% if x == 'b' %}{% continue %}{% endif %}{{ x }}{% endfor %}",
        "{% for x in 'ab' %}{% continue %}{% else %}e{% endfor %}", "{% for x in 'ab' %}{% break %}{% else %}e{% endfor %}", "{% for x in 'ab' %}{{ x }}{% else %}e{% endfor %}",
        "{% for x in 'ab' %}{% for y in 'cd' %}{% if y == 'd' %}{% break %}{% endif %}{{ x }}{{ y }}{% endfor %}{% endfor %}",
        "{% break %}", "{% for x in range(3) %}{{ x }}{% endfor %}", "{% for x in numbers|map('string') %}{{ loop.last }}{{ loop.length }}{% endfor %}",
        "{% set g = numbers|map('string') %}{% for x in g %}{{ x }}{% endfor %}-{% for x in g %}{{ x }}{% endfor %}", "{% for loop in [1] %}{% endfor %}",
        "{% for x in 1, 2 %}{{ x }}{% endfor %}", "{% for (a, b) in [(1, 2)] %}{{ a + b }}{% endfor %}", "{% for x in numbers if loop.index > 1 %}{{ x }}{% endfor %}",
        "{% print 1 %}{% print 1, 2 %}", "{% generation %}{{ text }}{% set q = 1 %}{% endgeneration %}{{ q is defined }}",
        "{% for x in nested.b.c[::-1] %}{{ x }},{% endfor %}", "{% for x in users %}{{ x.name if x.age > 25 else '-' }}{{ '' if loop.last else ', ' }}{% endfor %}",
    ],
    "scopes": [
        "{% set x = 1 %}{{ x }}", "{% set x, y = 1, 2 %}{{ x }}{{ y }}", "{% set x = 1, 2 %}{{ x }}", "{% set x = 0 %}{% for i in 'ab' %}{% set x = x + 1 %}{{ x }}{% endfor %}{{ x }}",
        "{% set ns = namespace(x=0) %}{% for i in 'ab' %}{% set ns.x = ns.x + 1 %}{% endfor %}{{ ns.x }}", "{% set ns.x = 1 %}", "{% set d = {} %}{% set d.x = 1 %}", "{% set ns = namespace() %}{% set ns._x = 1 %}",
        "{% if yes %}{% set x = 1 %}{% endif %}{{ x }}", "{% if no %}{% set x = 1 %}{% endif %}{{ x is defined }}", "{% set text = 'new' %}{{ text }}", "{% set x %}a{{ text }}b{% endset %}{{ x }}|{{ x|length }}",
        "{% set x | upper %}abc{% endset %}{{ x }}", "{% set x | replace('a', 'b') | upper %}abc{% endset %}{{ x }}", "{% set x %}{% set y = 1 %}{% endset %}{{ y is defined }}", "{% set ns = namespace() %}{% set ns.x %}abc{% endset %}{{ ns.x }}",
        "{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}{{ a is defined }}", "{% with %}{% set a = 1 %}{{ a }}{% endwith %}{{ a is defined }}", "{% set a = 5 %}{% with a = 1, b = a %}{{ a }}{{ b }}{% endwith %}",
        "{% filter upper %}abc{{ text }}{% endfilter %}", "{% filter replace('a', 'b')|upper %}abc{% endfilter %}", "{% filter trim %}  a {% set q = 1 %}{% endfilter %}{{ q is defined }}", "{% filter nope %}{% endfilter %}",
        "{% macro f(a, b=2) %}{{ a }}-{{ b }}{% endmacro %}{{ f(1) }} {{ f(1, 3) }} {{ f(b=4, a=5) }} {{ f() }}", "{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}", "{% macro f(a) %}{% endmacro %}{{ f(b=1) }}",
        "{% macro f() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(1, 2, x=3) }}", "{% macro f(a, b=a ~ 'x') %}{{ b }}{% endmacro %}{{ f(1) }}", "{% macro f() %}{{ text }}{% endmacro %}{{ f() }}", "{% macro f() %}{{ v }}{% endmacro %}{% set v = 1 %}{{ f() }}{% set v = 2 %}{{ f() }}",
        "{% macro f(n) %}{% if n > 0 %}{{ n }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}", "{% macro f() %}{% set x = 1 %}{% endmacro %}{{ f() }}{{ x is defined }}", "{% for i in 'ab' %}{% macro f() %}{{ i }}{% endmacro %}{{ f() }}{% endfor %}",
        "{% macro f() %}[{{ caller() }}]{% endmacro %}{% call f() %}x{{ text }}{% endcall %}", "{% macro f(l) %}{% for i in l %}{{ caller(i) }}{% endfor %}{% endmacro %}{% call(x) f([1, 2]) %}<{{ x }}>{% endcall %}", "{% macro f() %}{{ caller() }}{% endmacro %}{{ f() }}", "{% macro f() %}a{% endmacro %}{% call f() %}b{% endcall %}",
        "{% macro f(x) %}{{ x }}{% endmacro %}{{ f('<b>')|upper }}{{ f(1) + 'a' }}{{ f is callable }}{{ f.name }}", "{% macro f(a=1, b) %}{% endmacro %}", "{% macro f(x) %}{{ x is defined }}{% endmacro %}{{ f() }}", "{% macro f() %}{{ g() }}{% endmacro %}{% macro g() %}g{% endmacro %}{{ f() }}", "{{ f() }}{% macro f() %}a{% endmacro %}",
        "{% macro f(x) %}{% if x %}{% set x = 5 %}{% endif %}{{ x }}{% endmacro %}{{ f(1) }}{{ f(0) }}", "{% set true = 1 %}", "{% set 1 = 1 %}", "{% set x.y.z = 1 %}", "{% for i in 'ab' %}{{ z }}{% set z = i %}{{ z }}{% endfor %}", "{% set c = cycler(1, 2) %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}{% set j = joiner(',') %}{{ j() }}a{{ j() }}b",
        "{% for i in [1, 2] %}{% if loop.first %}{% set y = 'first' %}{% endif %}{{ y }}{% endfor %}", "{% set ns = namespace(l=[]) %}{% for i in numbers %}{% set ns.l = ns.l + [i] %}{% endfor %}{{ ns.l }}", "{% set x = missing %}{{ x is defined }}", "{% set messages = messages[1:] %}{{ messages|length }}", "{% set a = [1] %}{% set b = a %}{{ a is sameas b }}",
    ],
    "whitespace": [
        "a\n{% if yes %}\nb\n{% endif %}\nc\n", "a\n  {% if yes %}\n  b\n  {% endif %}\nc", "  {{ text }}\n", "a {%- if yes -%} b {%- endif -%} c", "a\n\n{%- if yes %}\n\n b{% endif +%}\n c", "a\n  {%+ if yes %}b{% endif %}", "a {{- ' b ' -}} c", "a\n{{- 'b' -}}\n c", "x\n{# c #}\ny", "x {#- c -#} y", "  {# c #}\n  y", "a{# {{ b }} {% c %} #}d",
        "{% raw %}{{ a }}{% b %}{# c #}{% endraw %}", "a {%- raw -%} {{ x }} {%- endraw -%} b", "  {% raw %}\n x{% endraw %}\ny", "{{ '}}' }}", "{{ \"{{ x }}\" }}", "{% set x = '%}' %}{{ x }}", "{{ {'a': {'b': 1}} }}", "{{{'a': 1}}}", "{{ {'a': {'b': 1}}['a']['b'] }}", "a\n\n", "a\n", "\n", "", "\n\na", "a\r\nb\rc", "{{ 1 }}\n", "{{ 1 }}\n\n", "{% if yes %}\r\na\r\n{% endif %}\r\n",
        "{{ 1\n+\n2 }}", "{%\nif yes\n%}a{%endif%}", "{%-if yes-%}a{%-endif-%}", "{{-1}}", "{{ -1 }}", "{{+1}}", "{% if yes %}  \n a{% endif %}", "\u00a0{% if yes %}a{% endif %}", "a\u3000{%- if yes %}b{% endif %}", "a{% if yes %} {% endif %}b", " {% if yes %} {% endif %} b", "a\n \t{% if yes %}x\n \t{% else %}\n{% endif %}\nb", "{ { % } a # {", "{{ 'a' }}{{ 'b' }} {{ 'c' }}", "{% for x in 'ab' %}\n  {{ x }}\n{% endfor %}\n", "{% for x in 'ab' -%}\n  {{ x }}\n{%- endfor %}",
        "{# a", "{% raw %}a", "{{ 1", "{% if", "{{ }}", "{% %}", "{{ 1 }", "{% if yes }}", "{% endif %}", "{% if yes %}{% endfor %}", "{{ a b }}", "{{ 1 2 }}", "{{ [1 }}", "{{ 'a }}", "{{ a. }}", "{{ a[ }}", "{{ f(a=1, 2) }}", "{{ f(a=1, a=2) }}", "{{ $ }}", "{{ 1 | }}", "{{ x is }}", "{% for in x %}{% endfor %}", "{% for x %}{% endfor %}", "{% set %}", "{{ a ? b }}", "{{ not }}", "{{ (1, }}", "{{ '\\x4' }}", "{{ 08 }}", "{{ a = 1 }}", "{% elif %}", "{% nope %}",
    ],
}


def environment():
    class Generation(jinja2.ext.Extension):
        tags = {"generation"}

        def parse(self, parser):
            line = next(parser.stream).lineno
            body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
            return jinja2.nodes.CallBlock(self.call_method("_run"), [], [], body).set_lineno(line)

        def _run(self, caller):
            return caller()

    class SafeNamespace(jinja2.utils.Namespace):
        def __setitem__(self, name, value):
            if name.startswith("_"):
                raise jinja2.exceptions.SecurityError(name)
            super().__setitem__(name, value)

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = lambda x, ensure_ascii=False, indent=None, separators=None, sort_keys=False: json.dumps(
        x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
    env.globals["namespace"] = SafeNamespace
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = datetime.datetime(2026, 1, 15, 12, 0, 0).strftime
    return env


def case(env, template):
    try:
        text = env.from_string(template).render(**copy.deepcopy(VARIABLES))  # some filters change lists in place
        text.encode()
    except Exception:
        return {"template": template, "error": True}
    # Addresses and generator names differ from run to run.
    return None if " at 0x" in text else {"template": template, "text": text}


def main():
    env = environment()
    folder = pathlib.Path(__file__).resolve().parent.parent / "data" / "jinja"
    folder.mkdir(parents=True, exist_ok=True)
    groups = {name: ["{{ " + e + " }}" for line in block.strip().splitlines() for e in line.split(" | ")] for name, block in EXPRESSIONS.items()}
    groups.update(STATEMENTS)
    for name, templates in groups.items():
        cases = [c for c in (case(env, t) for t in templates) if c]
        with open(folder / f"{name}.json", "w", encoding="utf-8") as out:
            json.dump({"variables": VARIABLES, "cases": cases}, out, ensure_ascii=True, indent=1)
            out.write("\n")
        print(f"{name}: {len(cases)} cases, {sum('error' in c for c in cases)} errors")


if __name__ == "__main__":
    main()
