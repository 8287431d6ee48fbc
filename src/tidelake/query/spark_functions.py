"""The functions that a query in Spark's SQL may call: their values depend on their arguments alone.

This is an allow-list, as for predicates: whatever Spark adds later is refused until it is listed here.
"""

from __future__ import annotations

from tidelake.read.predicate_growth import FUNCTIONS

_UNBOUNDED = "array_insert array_repeat format_number format_string lpad printf repeat rpad sequence space"
_MAPS = """map map_concat map_contains_key map_entries map_filter map_from_arrays map_from_entries map_keys map_values
    map_zip_with str_to_map transform_keys transform_values"""
_AGGREGATES = """any avg bit_and bit_or bit_xor bool_and bool_or corr count count_if covar_pop covar_samp every grouping
    grouping_id kurtosis max max_by mean median min min_by percentile percentile_cont percentile_disc regr_avgx
    regr_avgy regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy skewness some std stddev
    stddev_pop stddev_samp sum try_avg try_sum var_pop var_samp variance"""
_WINDOWS = "cume_dist dense_rank lag lead ntile percent_rank rank row_number"
_GENERATORS = "explode explode_outer inline inline_outer posexplode posexplode_outer stack"

IN_ORDER = frozenset(("listagg", "string_agg"))
"""Aggregates whose value depends on the order of rows: they need a `within group (order by …)`."""
IN_WINDOWS = frozenset(("first_value", "last_value", "nth_value"))
"""Functions that need an `over (… order by …)`: without it, they give the value of an arbitrary row."""
ACCEPTED = frozenset(
    (
        *FUNCTIONS,
        *" ".join((_UNBOUNDED, _MAPS, _AGGREGATES, _WINDOWS, _GENERATORS)).split(),
        *IN_ORDER,
        *IN_WINDOWS,
    )
)
"""All functions that a query may call."""
