#!/usr/bin/env python3
"""Write regexp.json: what Python's re.search says to patterns and subjects.

usage: gen_regexp.py [seed count] > regexp.json

Without arguments the table of the repository: all patterns below on all their
subjects, and 600 generated ones. One case a line: [pattern, ignore case,
subject, answer], the answer null where the pattern is refused. Recorded with
Python 3.11; later versions differ in \\B on an empty subject (which no filter
ever has) and in letters of newer Unicode versions.
"""
import json
import random
import re
import sys
import warnings

warnings.simplefilter("ignore")

WORDS = ["sleep", "a", "ab", "aab", "abc", "aaa", "ABC", "", "x1 y2", "a\nb", "a\n", "\n", "a-b]c^d[e", "é", "日本語", "🚀 go"]

# Each row: patterns, and the subjects all of them are searched in.
TABLE = [
    # quantifiers
    (["a*", "a+", "a?", "a{2}", "a{2,}", "a{,2}b", "a{,}b", "^a{1,2}$", "a{0}b", "a*?b", "a+?$", "a??b", "a{1,2}?b",
      "a{", "a{}", "a{x}", "a{1", "a{1,", "a{,x}", "a{ 1}", "{", "}", "a}", "{1}", "x{1,0}", "x{2,1}", "a{99999999999}",
      "a{3000000000}", "a{4294967294}", "a{4294967295}", "a{0,4294967295}", "a{0,4294967294}", "a{2147483648}?b", "(a){3000000000}|(b)\\2?"], WORDS),
    (["*", "+a", "?", "a**", "a*+", "a*++", "a?+b", "a++b", "a{1,2}+b", "a+*", "a{2}{3}", "a*?*", "a*??", "^*", "$+", "\\b*", "\\A?", "\\Z{2}",
      "(?:^)*a", "(?:)*a", "(?=a)*b", "(?=a)+a", "(?!a)?b", "(?<=a)*b", "(?<=a){2}b", "()*", "(|a)*b", "(a*)*b", "(a*)+$", "(?:a?)*?b", "a(?#c)*b",
      "(?#c)*", "|*", "a|*", "(*a)", "(?:*)"], WORDS),
    # groups, references, conditions
    (["(a)(b)\\2", "(a)\\1", "(?P<x>a)(b)?\\1", "(b)?(?P<x>a)\\2", "(?P<x>a)(?P=x)", "(?P<n>a)(b)(?P<m>c)|\\3", "(a)(?P<b>b)\\1", "(a)|b\\1",
      "(?P<x>a)(?P<x>b)", "(?P<1>a)", "(?P<a b>a)", "(?P<>a)", "(?P<x", "(?P<x>a", "(?P=x)", "(?P=)", "(?P>x)", "(?Px)", "(?P", "(?P<é>a)(?P=é)",
      "(?<x>a)", "(?'x'a)", "\\k<x>", "\\g<1>", "(a\\1)", "\\1(a)", "\\2(a)(b)", "(?P<x>(?P=x))", "(a)\\10", "(a)\\01", "\\8", "\\99", "(a)\\1{2}", "(a)\\11",
      "(a)?(?(1)b|c)", "(?(1)a|b)(c)", "(?(1)a|b)", "(?(2)a|b)(c)", "(?P<x>a)?(?(x)b|c)", "(?(x)a|b)(?P<x>c)", "(a)?(?(1)b)", "(a)?(?(1)|c)",
      "(a)?(?(1)b|c|d)", "(?(0)a)", "(?(-1)a)", "(?(a b)c)", "(?()a)", "(?(1", "(a)(?(1)b", "(a(?(1)b|c))", "(a)?(?(1)(b)|(c))\\2?", "(a)?(?(1)b|c)+$", "(a)?(?(1)b|c)*$",
      "(?:a|b)c", "(?:ab)+", "(?:a", "a)", "(", ")", "()", "(?", "(?)", "(?:", "(?:)", "(?a", "(?z)a", "(?@a)", "(?\\:a)", "( ?:a)"], WORDS),
    (["(.)\\1", "(?P<q>.)(.)\\2\\1", "(.)(.)(.)(.)(.)(.)(.)(.)(.)(.)\\10", "(a)(b)(c)(d)(e)(f)(g)(h)(i)(j)\\11", "(a|b(c)?)*\\2", "(?:(a)|b)*\\1",
      "(a)(?:b|(c))*\\2"], ["abba", "aa", "abcdefghijj", "abcdefghija1", "bcabc", "acbc", "abb", "aba", "sleep"]),
    # look-arounds, atomic groups
    (["slee(?=p)", "(?!s)^.", "(?<=s)l", "(?<!x)sleep", "(?<!s)l", "(?<=sl|xx)e", "(?<=a|bc)d", "(?<=a{2})b", "(?<=a{1,2})b", "(?<=a*)b", "(?<=a+)b", "(?<=(a))b\\1?",
      "(?<=(a)\\1)b", "(a)(?<=\\1)b", "(?<=^)a", "(?<=\\b)a", "(?<=a$)", "(?<=(?=ab)a)b", "(?<=(?<=a)b)c", "(?<!(?<!a)b)c", "(?<=(?:a|b){2})c", "(?<=(a|b){2})c", "(?<=[ab][^x])c",
      "(?<=a(?#x))b", "(?<=(?i)a)b", "(?<=(?i:A))b", "(?<=)a", "(?<!)a", "(?=)a", "(?!)a", "(?<a)", "(?<", "(?<=a", "(?=a", "(a)(?<=(?(1)a|b))b", "(a)(?<=(?(1)a|bc))b",
      "(?>a*)b", "(?>a*)ab", "(?>a|ab)c", "(?>a+)", "(?>)", "(?>a", "(?:(?>a+))*a", "(?>a?)*a", "(?:a++)*a", "(?>[ab]{1,2}){0,3}b", "a(?>bc|b)c", "(?=(a+))a*b\\1", "(?=(a))(?:\\1b|c)", "(?!(a)b)a", "(?=ab)(?=a)."], WORDS + ["aad", "bcd", "cbc", "abcc"]),
    # anchors and lines
    (["^a", "a$", "^a$", "\\Aa", "a\\Z", "a\\z", "^$", "$", "^", "$a", "a^", "\\Ga", "(?m)^b", "(?m)a$", "(?m)^$", "(?m:^)b", "(?m)\\Ab", "(?m)a\\Z", "(?-m:^)b", "(?m)(?-m:^)b", "(?m)(?-m:a$)",
      "(?m)$\\n", "(?m)\\n^", "$\\n", "a$\\n", "a.b", "(?s)a.b", "(?s:a.)b", "a(?s:.)b", "(?s)a(?-s:.)b", "a\\nb", "a\nb", ".", "(?s).", "\\n$", "\\n\\Z"], ["a", "a\n", "a\nb", "b\na", "\n", "", "a\n\n", "ba", "a\rb"]),
    (["\\b", "\\B", "\\ba", "a\\b", "\\Ba", "a\\B", "\\b日", "\\bé\\b", "é\\B", "(?a)\\bé", "(?a)é\\b", "(?a)\\B", "a\\b\u0301", "\\b\\d", "\\b_", "[\\b]", "(?<=\\b)é", "(?<=\\B)é", "^\\B$", "a\\b\\b", "\\b|x"],
     ["a", "é", "日本", "a é", "", "-", "1a", "_a", "aé", "a\u0301", "\b", "ñandú 1"]),
    # categories and classes
    (["\\d", "\\D", "\\w", "\\W", "\\s", "\\S", "^\\w+$", "^\\d+$", "^\\s+$", "(?a)^\\w+$", "(?a)^\\d+$", "(?a)^\\s+$", "(?a:\\w)\\w", "(?u:\\w)", "(?a)(?u)a", "(?a)(?u:\\w)", "(?u)(?a)a", "(?au)a", "(?a)(?a)a", "(?u)\\w",
      "[\\d]", "[^\\d]", "[\\D]", "[^\\D]", "[\\w-]", "[^\\W]", "[^\\W\\d]", "[^\\W\\d_]", "[\\W\\d]", "[\\W\\S]", "[^\\W\\S]", "[^\\s\\S]", "[\\s\\S]", "[\\d\\D]", "[^\\d\\s]", "[^\\D1]", "[\\Wa]", "(?a)[\\W]", "(?a)[^\\W]", "(?a:[\\W\\S])"],
     ["a", "1", "_", "-", " ", "é", "日", "٣", "²", "½", "Ⅷ", "一", "\u0301", "a\u0301", "\u200d", "‿", "\x1c", "\x1f", "\x85", "\xa0", "\u180e", "\u2003", "\u200b", "\u3000", "\ufeff", "ª", "º", "ʰ", "ǅ", "𝟙", "🚀", "🄰", "①", "〡"]),
    (["[abc]", "[^abc]", "[a-c]", "[c-a]", "[]a]", "[^]a]", "[]", "[^]", "[a", "[a-", "[a-]", "[-a]", "[a-a]", "[a-c-e]", "[--a]", "[+--]", "[a-\\d]", "[\\d-a]", "[\\d-]", "[a\\]b]", "[\\^a]", "[a^]", "[^^]", "[[]", "[[a]]", "[[:alpha:]]",
      "[a-z-[aeiou]]", "[a-z-[b]", "[a&&b]", "[a||b]", "[a~~b]", "[a--b]", "[.]", "[$]", "[*+?{}()|]", "[\\n]", "[\\x61]", "[\\u0061]", "[\\U00000061]", "[\\141]", "[\\0]", "[\\08]", "[\\8]", "[\\400]", "[\\377]", "[\\q]", "[\\A]", "[\\Z]", "[\\B]", "[\\-a]", "[a\\-c]",
      "[\\x4]", "[\\u12]", "[\\U00110000]", "[\\N{DIGIT ONE}]x]", "[\\p{L}]", "[\\k]", "[\\1]", "[é-ü]", "[日-本]", "[🚀-🚂]", "[^🚀]", "[\ud800-\udfff]", "[\ud7ff-\ue000]", "[#]", "[ ]", "[\\ ]", "[\\#]", "[\\&]"],
     ["a", "b", "c", "d", "e]", "]", "[", "^", "-", "x", ":", "&", "~", "|", "1", "8", "é", "日", "🚁", "\0", "\n", "#", " ", "\b", "ÿ"]),
    # escapes
    (["\\a", "\\f\\v", "\\t", "\\x61", "\\x6", "\\x", "\\xg1", "\\u0061", "\\u006", "\\U00000061", "\\U00110000", "\\U0000006", "\\0", "\\07", "\\061", "\\141", "\\1411", "\\400", "\\777", "\\377", "\\8", "\\q", "\\y", "\\c", "\\e", "\\p{L}", "\\R", "\\K", "\\Q", "\\h", "\\G", "\\z", "\\C", "\\X",
      "\\.", "\\\\", "\\-", "\\ ", "\\#", "\\/", "\\_", "\\é", "\\日", "\\!", "\\\"", "\\'", "\\,", "\\:", "\\;", "\\<", "\\=", "\\>", "\\@", "\\`", "\\~", "\\%", "\\&", "\\\n", "\\", "a\\", "[\\", "(?#\\", "\\u00e9", "\\xe9", "\\u65e5", "\\U0001f680", "\\ud83d\\ude80", "\\x00",
      "\\x5b", "\\x5d\\x2a", "\\u005e", "\\x2e", "\\x24"], ["a", "1", "\a", "\f\v", "\t", ".", "\\", "-", " ", "#", "/", "_", "é", "日", "🚀", "\0", "\x07", "a1", "8", "<", ">", "%", "@", "&", "\n", "[", "]*", "^", "$", "ÿ", "q", "p{L}"]),
    # flags
    (["(?i)SLEEP", "(?-i:SLEEP)", "(?i:SL)eep", "(?i:SL)EEP", "sl(?i)eep", "(?i)(?-i:S)LEEP", "(?x) s l e e p # c", "(?x)s\\ l", "(?x)[ s]l", "(?x: s l )ee p", "(?x: s # c\n l )ee", "(?x)sleep#", "(?x)(?-x: s)", " (?x)s", "(?x) (?i) S", "(?x)a {2}", "(?x)e{2 }", "(?x)e +", "(?x)e* ?",
      "(?x)(?#c)s", "(?x)(?:s # )\nl)ee", "(?x)\\#", "(?x)#\\\ns", "(?x) s | x ", "a|(?i)S", "(?i)a|S", "((?i)S)", "(?i)S|(?x)x", "(?i)|(?x)x", "(?L)a", "(?iL:a)", "(?t)a", "(?ims)S", "(?imsx-)a", "(?i-i:a)", "(?-a:s)", "(?-u:s)", "(?-)a", "(?i", "(?i-", "(?i-s", "(?-i", "(?-i)a", "(?i:s", "(?q:s)",
      "(?i-q:s)", "(?isi:S)", "(?-im:s)", "(?ia)S", "(?a:s)(?i:L)", "(?#)s", "(?#c", "(?#a)b)s", "(?#\\))s", "(?s-i:.)", "(?i)(?s).", "(?\\i)s", "(?i\\)s"], ["sleep", "SLEEP", "SLeep", "s l", " s", "# s", "s#l", "x", "s\nl", "", "a", "eee", "ee "]),
    (["(?i)k", "(?i)K", "(?i)[k]", "(?i)[a-z]", "(?i)[^k]", "(?i)[^a-z]", "(?i)s", "(?i)[r-t]", "(?ai)k", "(?ai)[a-z]", "(?i)i", "(?i)I", "(?i)İ", "(?i)ı", "(?i)[h-j]", "(?i)[^i]", "(?i)ß", "(?i)ẞ", "(?i)ss", "(?i)σ", "(?i)ς", "(?i)Σ", "(?i)[α-ω]", "(?i)µ", "(?i)μ", "(?i)å", "(?i)Ω", "(?i)ǆ", "(?i)ǅ", "(?i)é", "(?i)É", "(?i)[é]",
      "(?i)ﬅ", "(?i)ﬆ", "(?i)ΐ", "(?i)\u1fd3", "(?i)θ", "(?i)ϑ", "(?i)(k)\\1", "(?i)(é)\\1", "(?i)(s)\\1", "(?i)(σ)\\1", "(k)(?i:\\1)", "(?i)ж", "(?i)Ⅷ", "(?i)ⓐ", "(?i)𐐀", "(?ai)é", "(?i)\\x4b", "(?i)[\\x4b]", "(?i)\\w", "(?i)[^\\W]", "(?i)[A-z]", "(?i)[@-\\[]", "(?i)ა", "(?i)Ა", "(?i)ꭰ"],
     ["k", "K", "\u212a", "s", "S", "ſ", "i", "I", "İ", "ı", "ß", "ẞ", "ss", "σ", "ς", "Σ", "µ", "μ", "Μ", "å", "Å", "\u212b", "ω", "Ω", "\u2126", "ǆ", "ǅ", "Ǆ", "é", "É", "ﬅ", "ﬆ", "\u0390", "\u1fd3", "θ", "ϑ", "ϴ", "kK", "k\u212a", "sſ", "éÉ", "σς", "Ж", "ⅷ", "Ⓐ", "𐐨", "_", "`", "ა", "Ა", "Ꭰ"]),
]

# Patterns of the recorded calls of the contract, which all must run.
CONTRACT = (["s.*p", "^sleep$", "^leep", "(?P<x>.)(?P=x)", "(?x) sleep  # comment", "\\Asleep\\Z", "\\w{5}$", "(?:sleep|zz)", "a{,3}s", "\\bx?sleep\\b",
             "(?#c)sleep", "\\u0073", "\\163", "(s)?(?(1)l|zz)", "x*", "(a|b)*sleep", "(?-i:sleep)"], ["sleep", "cat", "SLEEP"])

ATOMS = ["a", "b", "c", "A", "é", "1", "-", " ", ".", "\\w", "\\d", "\\s", "\\W", "\\D", "\\b", "\\B", "^", "$", "[ab]", "[^a]", "[a-c1]", "[\\w-]", "[^\\W1]", "\\1", "\\2", "(?P=n)", "\\n", "\\Z", "\\A", "K", "ſ"]
QUANTIFIERS = ["*", "+", "?", "{2}", "{1,2}", "{,2}", "*?", "+?", "??", "*+", "++", "?+", "{1,2}+"]
GROUPS = ["(%s)", "(%s)", "(?:%s)", "(?P<n>%s)", "(?=%s)", "(?!%s)", "(?<=%s)", "(?<!%s)", "(?>%s)", "(?i:%s)", "(?-i:%s)", "(?s:%s)", "(?m:%s)", "(?x: %s )", "(?a:%s)", "(?(1)%s|b)", "(?(1)a|%s)"]
SUBJECTS = ["a", "b", "ab", "ba", "aab", "abab", "abc", "AbC", "é1", "a b", "a\nb", "a1-", "ca", "acb", "\n", "K\u212a", "sſ", "aé"]


def pattern(r, depth):
    branches = []
    for _ in range(1 if r.random() < .8 else 2):
        s = ""
        for _ in range(r.randint(1, 3)):
            if depth and r.random() < .45:
                atom = r.choice(GROUPS) % pattern(r, depth - 1)
            else:
                atom = r.choice(ATOMS)
            if r.random() < .35:
                atom += r.choice(QUANTIFIERS)
            s += atom
        branches.append(s)
    return "|".join(branches)


def generated(seed, count):
    r = random.Random(seed)
    for _ in range(count):
        yield pattern(r, 3), r.random() < .25, r.choice(SUBJECTS)


def cases():
    for patterns, subjects in TABLE + [CONTRACT]:
        for p in patterns:
            for s in subjects:
                yield p, False, s
    for p in CONTRACT[0]:
        for s in CONTRACT[1]:
            yield p, True, s
    yield from generated(1, 600)


def answer(p, ignore_case, s):
    try:
        compiled = re.compile(p, re.IGNORECASE if ignore_case else 0)
    except (re.error, OverflowError, ValueError, RecursionError):
        return None
    return compiled.search(s) is not None


def main():
    chosen = generated(int(sys.argv[1]), int(sys.argv[2])) if len(sys.argv) > 1 else cases()
    seen, lines = set(), []
    for case in chosen:
        result = answer(*case)
        # One subject is enough to tell that a pattern is refused.
        key = case[:2] if result is None else case
        if key not in seen:
            seen.add(key)
            lines.append(json.dumps([*case, result]))
    print("[\n" + ",\n".join(lines) + "\n]")


main()
