#!/usr/bin/env python3
"""Write json.json: what Python's json.loads says to texts.

usage: gen_json.py > json.json

One case a line: [text, error message or null, type of the value]. Recorded
with Python 3.11; 3.13 has another message for a comma before a bracket.
"""
import json
import random

TEXTS = ['', ' ', '{', '}', '[', ']', '{}', '[]', ' { } ', '[1,]', '[1 2]', '[,]', '{,}', '{"a"}', '{"a":', '{"a":1', '{"a":1,', '{"a":1 "b":2}', '{"a" 1}', '{1:2}', "{'a':1}",
         '{"a":1}x', '{"a":1}\n\n x', '{\n"a":\n}', '\ufeff{}', 'nul', 'null', 'nullx', 'true', 'True', 'false', 'NaN', 'Nan', 'Infinity', '-Infinity', '-Inf', '-', '--1', '+1', '0', '-0', '00', '01', '-01', '1.', '1.5', '.5', '1e', '1e5', '1E+5', '1e-',
         '1.e5', '0x1', '1_0', '"', '"a', '"a"', '"\\', '"\\"', '"\\\\"', '"\\x"', '"\\u"', '"\\u1"', '"\\u123"', '"\\u1234', '"\\u1234"', '"\\u12g4"', '"\\uD83D\\uDE80"', '"\\uD83D"', '"\\uD83D\\u0041"', '"\\uD83D\\u00"', '"\\uD83D\\uDE8"', '"\\uD83D\\uDE80', '"\\uD83D\\n"',
         '"\\uDE80"', '"\t"', '"\n"', '"\x00"', '"\x7f"', '"\x1f"', '"é\n"', '{"é":"日本"} x', '[[[[]]]]', '[{"a":[{}]}]', '//', '/* */ {}', '{"a":1}}', '\x0b{}', '\xa0{}', '{"a":"b\\q"}', '"\\/\\b\\f\\n\\r\\t"', '🚀', '"🚀" 🚀', '[1,2', '[1,2}', '{"a":[}', '{"a":tru}', '{"a":nulls}']


def mutated(seed, count):
    r = random.Random(seed)
    parts = ['{', '}', '[', ']', ':', ',', '"', '"a"', '"\\u00e9"', '\\', 'u', '1', '-', '.', 'e', '0', 'null', 'true', ' ', '\n', '日', '🚀', '{"a": 1', '"b": [', '\\ud83d', '\\ude80', '\t']
    for _ in range(count):
        yield "".join(r.choice(parts) for _ in range(r.randint(1, 8)))


lines = []
for text in dict.fromkeys([*TEXTS, *mutated(1, 500)]):
    try:
        message, kind = None, type(json.loads(text)).__name__
    except json.JSONDecodeError as e:
        message, kind = str(e), None
    lines.append(json.dumps([text, message, kind]))
print("[\n" + ",\n".join(lines) + "\n]")
