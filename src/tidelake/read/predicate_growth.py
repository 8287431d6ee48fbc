"""Bounds the size of the values in a predicate, relative to the row that it is evaluated for.

Each accepted function makes a value of bounded size, but nested calls multiply sizes: ten nested calls of `replace`
turn one letter into gigabytes, and an `aggregate` that doubles a string has no bound at all. So before any row is read,
a bound on the size of every value is derived from the predicate's text. The bound is linear in the columns: a predicate
is refused if a value may be larger than `TIMES_MAX` times the row, or grow with the square of the row's size.

Sizes are counted in units: a byte of a string, or a number, date or Boolean. A list is at least as large as the number
of its elements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

TIMES_MAX = 1_000
"""Maximum size of a value, as a multiple of the size of its row."""
UNITS_MAX = 1_000_000
"""Maximum size of a value that depends on no column."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_NUMBER = 1.0
_TEXT_OF_NUMBER = 40.0
"""Longest text of a number, a date or an interval."""
_DIGITS = 128.0
"""Longest text of a hash, and of a number in base 2."""
_BINARY = 50_000.0
"""Size assumed for every literal in hexadecimal digits, that of the longest one: Spark does not show its text."""

NUMBERS = _words(
    """abs acos acosh add_months array_contains array_position array_size arrays_overlap ascii asin asinh atan atan2
    atanh between bigint bit_count bit_get bit_length boolean bround cardinality cbrt ceil ceiling char char_length
    character_length chr collation contains convert_timezone cos cosh cot crc32 csc date date_add date_diff
    date_from_unix_date date_part date_sub date_trunc dateadd datediff datepart day dayname dayofmonth dayofweek
    dayofyear decimal degrees div double e endswith equal_null exists exp expm1 extract factorial find_in_set float
    floor forall from_utc_timestamp getbit hash hour hypot ilike instr int is_valid_utf8 isnan isnotnull isnull
    json_array_length last_day len length levenshtein like ln locate log log10 log1p log2 luhn_check make_date
    make_dt_interval make_interval make_timestamp make_timestamp_ltz make_timestamp_ntz make_ym_interval minute mod
    month monthname months_between negative next_day octet_length pi pmod position positive pow power quarter radians
    regexp regexp_count regexp_instr regexp_like rint rlike round sec second shiftleft shiftright shiftrightunsigned
    sign signum sin sinh size smallint sqrt startswith tan tanh timestamp timestamp_micros timestamp_millis
    timestamp_seconds tinyint to_date to_number to_timestamp to_timestamp_ltz to_timestamp_ntz to_unix_timestamp
    to_utc_timestamp trunc try_add try_divide try_make_interval try_make_timestamp try_make_timestamp_ltz
    try_make_timestamp_ntz try_mod try_multiply try_subtract try_to_number try_to_timestamp unix_date unix_micros
    unix_millis unix_seconds unix_timestamp weekday weekofyear width_bucket xxhash64 year"""
)
"""Functions whose result is a number, a date, a Boolean or a short name."""
DIGITS = _words("bin conv md5 sha sha1 sha2 typeof")
"""Functions whose result is a text of bounded length."""
PARTS = _words(
    """array_compact array_distinct array_except array_intersect array_max array_min array_remove array_sort btrim
    coalesce collate element_at elt filter flatten get get_json_object greatest if ifnull json_object_keys least left
    ltrim nanvl nullif nullifzero nvl nvl2 parse_url regexp_extract regexp_substr reverse right rtrim slice sort_array
    soundex split_part substr substring substring_index to_binary trim try_element_at try_to_binary try_validate_utf8
    unbase64 unhex validate_utf8 when zeroifnull"""
)
"""Functions whose result is an argument, or a part of one."""
SUMS = _words("array array_append array_prepend array_union concat named_struct overlay struct")
"""Functions whose results are put together from their arguments."""
SCALED: Mapping[str, float] = {
    **dict.fromkeys(("base64", "hex", "sentences", "split"), 2),
    **dict.fromkeys(("decode", "initcap", "lcase", "lower", "make_valid_utf8", "ucase", "upper"), 3),
    **dict.fromkeys(("try_url_decode", "url_decode", "url_encode"), 3),
    **dict.fromkeys(("encode", "mask", "translate"), 4),
    **dict.fromkeys(("binary", "string"), 5),
    **dict.fromkeys(("date_format", "from_unixtime", "to_char", "to_json", "to_varchar"), 10),
}
"""Maximum size of a function's result, as a multiple of the total size of its arguments."""

_OPERATORS_OF_PARTS = _words(
    "CaseWhen Collate StringTrim StringTrimLeft StringTrimRight Substring UnresolvedExtractValue"
)
_OPERATORS_OF_SUMS = _words("Concat CreateNamedStruct Overlay")
_NAMES = frozenset(("UnresolvedAttribute", "UnresolvedNamedLambdaVariable"))
_LOOKAROUNDS = ("(?=", "(?!", "(?<")

Name = tuple[str, ...]
"""A column or a lambda's argument, and the field of it that is used, if any; in lower case."""


class Grows(Exception):
    """A value may become too large; the message says how."""


@dataclass(frozen=True)
class Size:
    """A bound on the size of a value: some units and, for each name, a multiple of the size of that name's value."""

    units: float = 0.0
    of: Mapping[Name, float] = field(default_factory=dict)

    def times(self, factor: float) -> Size:
        """Return the size of `factor` such values."""
        return Size(self.units * factor, {name: share * factor for name, share in self.of.items()})

    def share(self, name: str) -> float:
        """Return how often the value of a name may occur in this value: as a whole, plus the largest share of a field.

        The fields of a struct do not overlap, so their shares are not added up.
        """
        by_field: dict[Name, float] = {}
        for path, share in self.of.items():
            if path[0] == name:
                by_field[path[1:2]] = by_field.get(path[1:2], 0.0) + share
        whole = by_field.pop((), 0.0)
        return whole + max(by_field.values(), default=0.0)

    def without(self, names: Iterable[str]) -> Size:
        """Return the part of the size that does not depend on these names."""
        left = {path: share for path, share in self.of.items() if path[0] not in names}
        return Size(self.units, left)

    def substituted(self, values: Mapping[str, Size]) -> Size:
        """Return the size, with these sizes for the values of some names."""
        return total([self.without(values), *(size.times(self.share(name)) for name, size in values.items())])

    def check(self, function: str) -> None:
        """Refuse a size that is out of bounds.

        Args:
            function: how an error begins, as in `calls 'replace'`.

        Raises:
            Grows: the size is out of bounds; the error names the function.
        """
        if self.units > UNITS_MAX:
            raise Grows(f"{function}, which may make a value of more than {UNITS_MAX:,} bytes")
        # Columns are parts of a row that do not overlap.
        if any(self.share(name) > TIMES_MAX for name in {path[0] for path in self.of}):
            raise Grows(f"{function}, which may make a value more than {TIMES_MAX:,} times as large as its row")


@dataclass(frozen=True)
class _Value:
    """Bounds for a part of a predicate: on the size of its value, and on that of every value computed for it."""

    size: Size
    peak: Size
    literal: str | None = None
    """The text, if the value is a string literal."""
    arguments: tuple[str, ...] | None = None
    """The names of a lambda's arguments; None if it is not a lambda."""


def problem_of_growth(nodes: Sequence[Mapping[str, Any]]) -> str | None:
    """Return how a value of a predicate may become too large, or None if it stays within bounds.

    Args:
        nodes: the tree of the predicate, which contains only accepted operators and functions: each node comes before
            its children, as in Spark's JSON.
    """
    values: list[_Value] = []
    try:
        for node in reversed(nodes):
            count = node["num-children"]
            children = values[len(values) - count :][::-1]
            del values[len(values) - count :]
            values.append(_value_of(node, children))
    except Grows as problem:
        return str(problem)
    return None


def total(sizes: Iterable[Size]) -> Size:
    """Return the size of several values together."""
    units, of = 0.0, dict[Name, float]()
    for size in sizes:
        units += size.units
        for name, share in size.of.items():
            of[name] = of.get(name, 0.0) + share
    return Size(units, of)


def largest(sizes: Iterable[Size]) -> Size:
    """Return a size that none of several values exceeds."""
    units, of = 0.0, dict[Name, float]()
    for size in sizes:
        units = max(units, size.units)
        for name, share in size.of.items():
            of[name] = max(of.get(name, 0.0), share)
    return Size(units, of)


def product(size: Size, other: Size, function: str) -> Size:
    """Return the size of a value that contains a value of the other size for each unit of the first size.

    Raises:
        Grows: both depend on the row.
    """
    if not size.of:
        return other.times(size.units)
    if not other.of:
        return size.times(other.units)
    raise Grows(f"{function}, which may make a value grow with the square of its row")


def _value_of(node: Mapping[str, Any], children: Sequence[_Value]) -> _Value:
    kind = node["class"].rpartition(".")[2].partition("$")[0]
    # Lambdas are left out: `inner` covers what their bodies compute, with sizes for their arguments.
    peak = largest(child.peak for child in children if child.arguments is None)
    if kind == "LambdaFunction":
        arguments = tuple(next(iter(child.size.of))[0] for child in children[1:])
        return _Value(children[0].size, children[0].peak, arguments=arguments)
    literal, inner = None, Size()
    if kind == "UnresolvedFunction":
        name = node["nameParts"].strip("[]").lower()
        called = f"calls '{name}'"
        size, inner = _size_of_call(name, called, children)
    else:
        called = f"uses {kind}"
        size = _size_of_operator(kind, node, children)
        if kind == "Literal" and node["dataType"] == "string":
            literal = node["value"]
    size.check(called)
    peak = largest((size, peak, inner))
    peak.check(called)
    return _Value(size, peak, literal)


def _size_of_operator(kind: str, node: Mapping[str, Any], children: Sequence[_Value]) -> Size:
    sizes = [child.size for child in children]
    if kind in _NAMES:
        parts = node["nameParts"].removeprefix("[").removesuffix("]").lower().split(", ")
        return Size(0.0, {tuple(parts): 1.0})
    if kind == "Literal":
        return Size(_size_of_literal(node))
    if kind == "Cast":
        is_text = not isinstance(node["dataType"], str) or node["dataType"] in ("string", "binary")
        return total([sizes[0].times(SCALED["string"]), Size(_TEXT_OF_NUMBER)]) if is_text else Size(_NUMBER)
    if kind in _OPERATORS_OF_PARTS:
        return largest(sizes)
    if kind in _OPERATORS_OF_SUMS:
        return total(sizes)
    return Size(_NUMBER)


def _size_of_literal(node: Mapping[str, Any]) -> float:
    if node["dataType"] == "binary":
        return _BINARY
    if node["dataType"] == "string":
        return float(max(1, len((node["value"] or "").encode())))
    return _NUMBER


def _size_of_call(name: str, called: str, children: Sequence[_Value]) -> tuple[Size, Size]:
    """Return the size of what a function returns, and of the values that its lambdas compute."""
    if any(child.arguments is not None for child in children):
        return _size_of_loop(name, called, children)
    sizes = [child.size for child in children]
    if name in NUMBERS:
        return Size(_NUMBER), Size()
    if name in DIGITS:
        return Size(_DIGITS), Size()
    if name in PARTS:
        return largest([*sizes, Size(_NUMBER)]), Size()
    if name in SUMS:
        return total(sizes), Size()
    if name in SCALED:
        text = Size(_TEXT_OF_NUMBER) if name in ("string", "binary") else Size()
        return total([total(sizes).times(SCALED[name]), text]), Size()
    least, size_of = _OTHERS.get(name, (len(children) + 1, _zipped))
    if len(children) < least:  # Spark refuses such a call
        return total(sizes), Size()
    return size_of(called, children), Size()


def _replaced(called: str, children: Sequence[_Value]) -> Size:
    text, search, *more = children
    if not more:
        return text.size
    if more[0].size.of:
        return product(text.size, more[0].size, called)
    searched = len((search.literal or "").encode()) or 1
    return text.size.times(max(1.0, more[0].size.units / searched))


def _replaced_by_pattern(called: str, children: Sequence[_Value]) -> Size:
    text, pattern, replacement = (child for child in children[:3])
    inserted = product(total([text.size, Size(_NUMBER)]), replacement.size, called)
    if replacement.literal is not None and "$" not in replacement.literal:
        return total([text.size, inserted])
    groups = (replacement.literal or "$").count("$")
    return total([_matched(called, text, pattern, groups), text.size, inserted])


def _extracted(called: str, children: Sequence[_Value]) -> Size:
    return _matched(called, children[0], children[1], 2)


def _matched(called: str, text: _Value, pattern: _Value, groups: float) -> Size:
    """Return the size of this many groups of every match of a pattern. A group may reach beyond its match."""
    overlaps = pattern.literal is None or any(look in pattern.literal for look in _LOOKAROUNDS)
    return product(text.size, text.size, called) if overlaps else text.size.times(groups)


def _joined(called: str, children: Sequence[_Value]) -> Size:
    return total([children[0].size, product(children[0].size, total(child.size for child in children[1:]), called)])


def _joined_texts(called: str, children: Sequence[_Value]) -> Size:
    separator, *texts = children
    parts = total([*(child.size for child in texts), Size(float(len(texts)))])
    return total([parts, product(parts, separator.size, called)])


def _parsed(called: str, children: Sequence[_Value]) -> Size:
    schema = (children[1].literal or "array").lower() if len(children) > 1 else ""
    repeats = any(word in schema for word in ("array", "map"))
    fields = Size(float(schema.count(",") + 2))
    repeated = product(children[0].size, fields if repeats else Size(_NUMBER), called)
    return total([repeated, *(child.size for child in children[1:])])


def _zipped(called: str, children: Sequence[_Value]) -> Size:
    return total(child.size for child in children).times(float(len(children)))


_OTHERS: Mapping[str, tuple[int, Callable[[str, Sequence[_Value]], Size]]] = {
    "array_join": (2, _joined),
    "arrays_zip": (1, _zipped),
    "concat_ws": (1, _joined_texts),
    "from_json": (1, _parsed),
    "regexp_extract_all": (2, _extracted),
    "regexp_replace": (3, _replaced_by_pattern),
    "replace": (2, _replaced),
}
"""The other functions: the minimum number of their arguments, and the size of their results."""
LOOPS = _words("aggregate array_sort exists filter forall reduce transform zip_with")
"""Functions that evaluate a lambda for each element of a list."""
FUNCTIONS = NUMBERS | DIGITS | PARTS | SUMS | SCALED.keys() | _OTHERS.keys() | LOOPS
"""The functions that a predicate may call: their results depend only on the arguments, and have a bounded size.

Left out on purpose: functions that can make a value of any size from a number (`repeat`, `lpad`, `sequence`). Without
an argument, functions like `unix_timestamp` read the clock, which `predicate` detects with Spark's own rules.
"""


def _size_of_loop(name: str, called: str, children: Sequence[_Value]) -> tuple[Size, Size]:
    if name in ("aggregate", "reduce"):
        return _size_of_fold(called, children)
    lists = [child for child in children if child.arguments is None]
    whole = total(each.size for each in lists)
    body = next(child for child in children if child.arguments is not None)
    arguments = body.arguments or ()
    # A second argument is an element in `zip_with` and `array_sort`; elsewhere, it is an index.
    elements = {
        argument: lists[place].size if place < len(lists) else whole if name == "array_sort" else Size(_NUMBER)
        for place, argument in enumerate(arguments)
    }
    inner = body.peak.substituted(elements)
    if name in ("exists", "forall"):
        return Size(_NUMBER), inner
    if name in ("filter", "array_sort"):
        return whole, inner
    of_elements = [elements[each].times(body.size.share(each)) for each in arguments[: len(lists)]]
    rest = body.size.without(arguments[: len(lists)]).substituted(
        {each: Size(_NUMBER) for each in arguments[len(lists) :]}
    )
    return total([*of_elements, product(whole, rest, called), whole]), inner


def _size_of_fold(called: str, children: Sequence[_Value]) -> tuple[Size, Size]:
    if len(children) < 3 or len(children[2].arguments or ()) != 2:  # Spark refuses such a call
        return total(child.size for child in children), Size()
    values, start, merge, *finish = children
    so_far, element = merge.arguments or ()
    kept = merge.size.share(so_far)
    if kept > 1:
        raise Grows(f"{called}, in which a value may be multiplied by {kept:g} for each element of a list")
    rest = merge.size.without((so_far, element))
    of_elements = values.size.times(merge.size.share(element))
    each = product(values.size, rest, called) if kept else rest
    result = total([start.size, of_elements, each])
    inner = merge.peak.substituted({so_far: result, element: values.size})
    if finish and finish[0].arguments:
        final = finish[0].size.substituted({finish[0].arguments[0]: result})
        return final, largest([inner, result, finish[0].peak.substituted({finish[0].arguments[0]: result})])
    return result, inner
