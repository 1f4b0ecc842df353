#!/usr/bin/env python3
"""Write letters.json: what Python holds of each code point.

usage: gen_letters.py > letters.json

  known     ranges of the code points that Python's Unicode version has
  word, digit, space
            ranges that \\w, \\d and \\s match
  uncased, ignorable
            ranges c where "aΣc" has a final sigma, and where "aΣca" has none
  lower     [text, text.lower()] pairs
  folds     [letter, all that it matches under re.IGNORECASE], where more than one

Recorded with Python 3.11 (Unicode 14).
"""
import json
import unicodedata
import _sre
from re._casefix import _EXTRA_CASES

CODES = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]


def ranges(test):
    found = []
    for c in CODES:
        if test(chr(c)):
            if found and found[-1][1] == c - 1:
                found[-1][1] = c
            else:
                found.append([c, c])
    return found


lowered = {}
for c in CODES:
    lowered.setdefault(_sre.unicode_tolower(c), []).append(c)


def fold(c):
    low = _sre.unicode_tolower(c)
    return sorted({x for same in (low, *_EXTRA_CASES.get(low, ())) for x in lowered.get(same, ())})


mapped = [chr(c) for c in CODES if chr(c).lower() != chr(c)]
texts = ["".join(mapped[i:i + 50]) for i in range(0, len(mapped), 50)]
texts += ["", "abc", "ABC", "İ", "Iİıi", "Σ", "ΑΣ", "ΑΣΑ", "ΑΣ Α", "Α.Σ", "Α.Σ.", "Α.Σ.Α", "1Σ", "ΣΣ", "ΣΣΣ ΣΣ", "ΌΔΥΣΣΕΎΣ", "ΑΣ\u0301", "ΑΣ\u0301Α", "'Σ'", "aΣ\u00ad", "ǅ", "ẞ", "STRASSE", "Éditeur", "ſK\u212a", "日本語", "🚀Σ", "aΣ🚀"]
folds = []
for c in CODES:
    same = fold(c)
    if len(same) > 1:
        folds.append([chr(c), "".join(map(chr, same))])
print(json.dumps({
    "known": ranges(lambda c: unicodedata.category(c) != "Cn"),
    "word": ranges(lambda c: c.isalnum() or c == "_"),
    "digit": ranges(str.isdecimal),
    "space": ranges(str.isspace),
    "uncased": ranges(lambda c: ("aΣ" + c).lower()[1] == "ς"),
    "ignorable": ranges(lambda c: ("aΣ" + c + "a").lower()[1] == "σ"),
    "lower": [[t, t.lower()] for t in texts],
    "folds": folds,
}, separators=(",", ":")).replace('],"', '],\n"'))
