"""Values that have broken programs before, by what they pretend to be."""

from __future__ import annotations

from tests.attacks.site import MARKER

MANY = 9_000
DEEP = 5_000
LONG_TEXTS = (
    "a" * 1_000_000,
    "ab cd " * 150_000,
    "a\n" * 400_000,
    "a," * 400_000,
    " " * 900_000 + "x",
    "{{" * 90_000,
    "e\u0301" * 60_000,
    "*_`[]()<>#" * 8_000,
    "[a](" * 30_000,
    ">" * 50_000,
    "@a-admin @x " * 8_000,
)
ODD_TEXTS = (
    "a\0b",
    "a\ud800b",
    "a\u202e\u2066b\u2069",
    "".join(map(chr, range(1, 32))) + "\x7f\x85\u2028\u2029",
    "e" + "\u0301" * 3_000,
    "\u200b\u200d\ufeff",
    "\ufffe\uffff\U0010ffff",
    " \u00a0\u3000\t",
    "a\r\nSet-Cookie: x=1\n",
    "../../etc/passwd",
    "%00%2f%25%zz",
    "//evil.example/",
    "'\";--",
    "\"'><img src=x onerror=attack(91)>",
    MARKER,
    f"</textarea></title></style>{MARKER}",
    "{{ 7*7 }}{% debug %}{# x #}",
    "%s%d%n{0}{x.__class__}",
    "javascript:attack(91)",
    "=1+1|cmd",
    "{{ metadata.a[0].b['c'] }} {{output}}" * 50,
)
NUMBERS = (
    *("", "NaN", "inf", "-Infinity", "1e999", "-0", "-0.0", "1e-400", "1e308", "+5", " 5 ", "0x10"),
    *("1_000", "\u0663", "\u00b2", "\uff15", "1,5", "2147483648", "9223372036854775807"),
    *("9223372036854775808", "-1", "-9223372036854775809", "0", "0.1", "1e22", "00", "--1", "1e"),
    *("sNaN", "1E+1000000", "0e999999999", "1e-999999999", "0." + "1" * 2_000, "9" * 5_000),
)
DATES = (
    *("0001-01-01", "0001-01-01T00:00", "9999-12-31T23:59:59", "10000-01-01", "2024-02-30"),
    *("0000-00-00", "2024-01-01T00:00+23:59", "1970-01-02T00:00:00-23:59", "2024-W01", "12:00"),
)
NAMES = (
    *("zzz", "PASS", "__class__", "null", "true", "999999999", "support:1", "support:2"),
    *("support:999", "support:99999999999999", "support:latest", "support:-1", "nobody:latest"),
    *("support", "juno", "a:b:c", "1,2,3", ":1", "00000000-0000-0000-0000-000000000000"),
)
STRUCTURES = (
    *('{"a":"\\ud800"}', '{"a":"\\u0000"}', '{"a":1,"a":2}', "1e400", "[1,2", '"x"', "[]", "{}"),
    *('{"":""}', '{"a":NaN}', '{"a":1e400}', "[" * DEEP, '{"a":' * 500 + "1" + "}" * 500),
    *("a: &x [1]\nb: *x", "a: &a [*a]", "!!python/object:os.system x", "? [a]\n: b", "a: .inf"),
    *("%YAML 3.0\n---\na", '{"type":"object","$ref":"#"}', '{"$ref":"http://127.0.0.1:1/x"}'),
    *('{"pattern":"(a+)+$"}', '{"text":5,"messages":[1,null]}', f"[{','.join('1' * MANY)}]"),
)
PATTERNS = (
    *("(", "[", "(?P<a>", "(?:(?:a{100}){100}){200}", "(a+)+$", "\\", "a{99999}", "(?R)"),
    *("(" * DEEP, "a|" * DEEP, "\\p{L}" * 500),
)
SHORT = (*ODD_TEXTS, *NUMBERS, *DATES, *NAMES, *STRUCTURES, *PATTERNS)
# What a filter of results or a search may be asked.
FILTERS = (
    *(
        "score < 0.5",
        "tone < mark",
        "not " * 19 + "a",
        "(" * 20 + "a" + ")" * 20,
        "a or " * 19 + "b",
    ),
    *('"' + "a b " * 240 + '"', "score = " + ",".join("1" * 450), "score < " + "9" * 400 + "%"),
    *(
        "meta." + "a." * 400 + "x = 1",
        "meta.a[0]..b = 1",
        "score < 1e5",
        "latency > 99999999999min",
    ),
    *("cost > $0." + "1" * 900, "tokens > 9999999999999999999999k", "spread != none", "tag = none"),
    *("case = \ud800", "case = " + "\\" * 500, "met = a", "missed = " + "a " * 400, "error = any"),
    *("output = " + "a* " * 300, "reasoning = %", "verdict = pass,fail,error,none", "verdict fell"),
    *("tone fell by NaN", "score fell by 1e9", "-" * 500 + "a", "() or ()", "and and", "score<>1"),
    *("external.x/y < 1", "pairwise.tone = win", "metric.tone > 3", "dimension.a < 2"),
    *("review = waiting and flaky = yes", "\u0130=1", "\u212a = 1", "score < \U0001d7d3"),
)
# The columns of a place in a list, joined by a tilde (runs.lists.Keyset).
PLACES = (
    *("5", "1", "3", "0", "0.5", "a%7Eb", "2026-01-01T00:00:00+00:00", "NaN", "inf", "1e999", "-1"),
    *("9223372036854775807", "9223372036854775808", "-9223372036854775809", "%ED%A0%80", "%00"),
    *("%FF", "9999-12-31T23:59:59.999999+00:00", "1970-01-02T00:00:00-23:59", "\u0663", "1_0"),
    *("x" * 900, "", "null"),
)
COLUMNS = (
    *("-score", "--score", "-", "evaluator.", "-evaluator.tone", "metric." + "x" * 900, "meta."),
    *("evaluator.a\0", "meta.a.b", "evaluator.tone,metric.x,%2C,%25", "," * 900, "id__gt"),
    *(",".join(f"evaluator.n{number}" for number in range(300)), "owner__password", "pk"),
)
