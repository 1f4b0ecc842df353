#!/usr/bin/env python3
"""Write filter_errors.json: the recorded calls whose filters are refused.

usage: gen_filter_errors.py DIR_OF_VECTORS > filter_errors.json

One call a line: [tool, filters, text, error type].
"""
import glob
import json
import sys

seen = []
for path in sorted(glob.glob(sys.argv[1] + "/*.json")):
    for call in json.load(open(path)).get("calls", []):
        arguments = call.get("arguments")
        if "error" not in call or not isinstance(arguments, dict) or "filters" not in arguments:
            continue
        if call["error"]["meta"]["error_type"] == "TmuxObjectDoesNotExist":
            continue
        row = [call["tool"], arguments["filters"], call["error"]["text"], call["error"]["meta"]["error_type"]]
        if row not in seen:
            seen.append(row)
print("[\n" + ",\n".join(map(json.dumps, seen)) + "\n]")
