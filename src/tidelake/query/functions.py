"""The functions that predicates and SQL may call: their value depends on their arguments alone.

This is an allow-list, because a new version of DuckDB may add functions that read files, the clock or settings. A test
compares the list with what DuckDB says about the stability of each function.
"""

from __future__ import annotations

_OPERATORS = "+ - * / // % ** ^ & | ~ << >> @ || ~~ !~~ ~~* !~~* ~~~ ^@ <-> <=> ->> && @> <@ < <= = > >="
_NUMBERS = """abs acos acosh add asin asinh atan atan2 atanh bit_count cbrt ceil ceiling cos cosh cot degrees divide
    even exp factorial fdiv floor fmod gamma gcd greatest greatest_common_divisor isfinite isinf isnan lcm least
    least_common_multiple lgamma ln log log10 log2 mod multiply nextafter pi pow power radians round round_even
    roundbankers sign signbit sin sinh sqrt subtract tan tanh trunc xor"""
_TEXT = """ascii bar base64 bin bit_length char_length character_length chr concat concat_ws contains
    damerau_levenshtein decode editdist3 encode ends_with format format_bytes from_base64 from_binary from_hex
    hamming hex ilike_escape instr jaccard jaro_similarity jaro_winkler_similarity lcase left left_grapheme length
    length_grapheme levenshtein like_escape lower lpad ltrim md5 md5_number mismatches nfc_normalize
    not_ilike_escape not_like_escape octet_length ord overlay position prefix printf regexp_escape regexp_extract
    regexp_extract_all regexp_full_match regexp_matches regexp_replace regexp_split_to_array repeat replace reverse
    right right_grapheme rpad rtrim sha1 sha256 split split_part starts_with str_split str_split_regex string_split
    string_split_regex string_to_array strip_accents strlen strpos substr substring substring_grapheme suffix
    to_base to_base64 to_binary to_hex translate trim ucase unbin unhex unicode upper url_decode url_encode"""
_TIMES = """century date_add date_diff date_part date_sub date_trunc datediff datepart datesub datetrunc day dayname
    dayofmonth dayofweek dayofyear days_in_month decade epoch epoch_ms epoch_ns epoch_us era hour isodow isoyear
    julian last_day make_date make_time make_timestamp make_timestamptz microsecond millennium millisecond minute
    month monthname nanosecond quarter second strftime strptime time_bucket timezone to_centuries to_days to_decades
    to_hours to_microseconds to_millennia to_milliseconds to_minutes to_months to_quarters to_seconds to_timestamp
    to_weeks to_years try_strptime week weekday weekofyear year yearweek"""
_NESTED = """aggregate apply array_aggr array_aggregate array_append array_apply array_cat array_concat array_contains
    array_distinct array_extract array_filter array_has array_has_all array_has_any array_indexof array_intersect
    array_length array_pop_back array_pop_front array_position array_prepend array_push_back array_push_front
    array_reduce array_resize array_reverse array_reverse_sort array_select array_slice array_sort array_to_string
    array_transform array_unique array_value array_where array_zip cardinality element_at filter flatten grade_up
    len list_aggr list_aggregate list_append list_apply list_avg list_bool_and list_bool_or list_cat list_concat
    list_contains list_count list_distinct list_element list_extract list_filter list_grade_up list_has list_has_all
    list_has_any list_indexof list_intersect list_max list_min list_pack list_position list_prepend list_product
    list_reduce list_resize list_reverse list_reverse_sort list_select list_slice list_sort list_sum list_transform
    list_unique list_value list_where list_zip map map_concat map_contains map_entries map_extract map_extract_value
    map_from_entries map_keys map_values reduce row struct_concat struct_contains struct_extract struct_extract_at
    struct_has struct_insert struct_keys struct_pack struct_update struct_values unpivot_list"""
_JSON = """array_to_json from_json from_json_strict json json_array json_array_length json_contains json_exists
    json_extract json_extract_path json_extract_path_text json_extract_string json_keys json_merge_patch json_object
    json_pretty json_quote json_structure json_transform json_transform_strict json_type json_valid json_value
    row_to_json to_json"""
_OTHER = "constant_or_null hash if nullif switch typeof"
_OVER_ROWS = """arg_max arg_max_null arg_min arg_min_null argmax argmin avg bit_and bit_or bit_xor bool_and bool_or
    corr count count_if count_star countif covar_pop covar_samp cume_dist dense_rank entropy favg fill first_value
    fsum geomean geometric_mean histogram kahan_sum kurtosis kurtosis_pop lag last_value lead mad max max_by mean
    median min min_by nth_value ntile percent_rank product quantile quantile_cont quantile_disc rank rank_dense
    regr_avgx regr_avgy regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy row_number sem
    skewness stddev stddev_pop stddev_samp sum sum_no_overflow sumkahan unnest var_pop var_samp variance"""
_ORDERED = "array_agg group_concat json_group_array list listagg string_agg"
_TABLES = "generate_series range unnest"
_OF_THE_SESSION = """current_catalog current_date current_localtime current_localtimestamp current_role current_schema
    current_time current_timestamp current_user localtime localtimestamp session_user user"""

SCALARS = frozenset(" ".join((_OPERATORS, _NUMBERS, _TEXT, _TIMES, _NESTED, _JSON, _OTHER)).split())
"""Functions of a single row."""
OVER_ROWS = frozenset(_OVER_ROWS.split())
"""Aggregates and window functions that may be called without an order of rows, except those in `BY_PLACE`."""
ORDERED = frozenset(_ORDERED.split())
"""Aggregates whose value depends on the order of rows: they need an `order by` of their own."""
BY_PLACE = frozenset(("fill", "first_value", "lag", "last_value", "lead", "nth_value", "ntile", "row_number"))
"""Window functions whose value depends on the order of rows: the window needs an `order by`."""
TABLES = frozenset(_TABLES.split())
"""Functions that return rows."""
ACCEPTED = SCALARS | OVER_ROWS | ORDERED | TABLES
"""All functions that a query may call; a predicate may call only those of a single row."""
OF_THE_SESSION = frozenset(_OF_THE_SESSION.split())
"""Words that call a function without parentheses, unless a column has that name."""
UNBOUNDED = frozenset(("array_resize", "bar", "generate_series", "list_resize", "lpad", "range", "repeat", "rpad"))
"""Functions whose result has no bound on its size: predicates cannot call them."""
BY_NAME = frozenset(("aggregate", "array_aggr", "array_aggregate", "list_aggr", "list_aggregate"))
"""Functions that call an aggregate whose name is an argument: this name is checked as if the query called it."""
