"""The functions that a query may call, and messages for all others.

These are SeaTunnel's functions (call.FUNCTIONS) and Spark's functions of one row, which are passed
on unchanged.
"""

from tidegate.connectors.sql import (
    functions_number,
    functions_other,
    functions_text,
    functions_time,
)
from tidegate.connectors.sql.call import FUNCTIONS
from tidegate.connectors.sql.errors import SqlError
from tidegate.model.problem import closest_match

REGISTERED = (
    functions_number,
    functions_other,
    functions_text,
    functions_time,
)  # importing them fills FUNCTIONS

_SPARK_FUNCTIONS = """
    acosh add_months aggregate array_append array_compact array_contains array_distinct array_except
    array_insert array_intersect array_join array_position array_prepend array_remove array_repeat
    array_size array_sort array_union arrays_overlap arrays_zip asinh assert_true atanh base64 bin
    bit_count bit_get bround btrim cardinality cbrt character_length contains conv convert_timezone
    crc32 csc current_timezone date_add date_diff date_format date_from_unix_date date_part date_sub
    datepart day dayofmonth dayofweek dayofyear decode degrees e element_at elt encode endswith
    equal_null exists expm1 factorial filter find_in_set flatten forall format_number format_string
    from_csv from_json from_utc_timestamp from_xml get getbit greatest hash hex hypot if ilike
    initcap is_valid_utf8 is_variant_null isnan isnotnull isnull json_array_length json_object_keys
    last_day least len levenshtein localtimestamp log1p log2 luhn_check make_date make_dt_interval
    make_interval make_time make_timestamp make_timestamp_ltz make_timestamp_ntz make_ym_interval
    map_concat map_contains_key map_entries map_filter map_from_arrays map_from_entries map_keys
    map_values map_zip_with mask months_between named_struct nanvl negative next_day nullifzero nvl
    nvl2 overlay parse_json parse_url pmod positive printf raise_error randn reduce regexp
    regexp_count regexp_extract regexp_extract_all regexp_instr reverse rint rlike schema_of_json
    sec sentences sequence sha sha1 sha2 shiftleft shiftright shuffle signum size slice sort_array
    split_part startswith str_to_map struct substring_index time_diff time_trunc timestamp_micros
    timestamp_millis timestamp_seconds to_binary to_csv to_json to_number to_time to_timestamp
    to_timestamp_ltz to_timestamp_ntz to_unix_timestamp to_utc_timestamp to_varchar transform
    transform_keys transform_values try_add try_divide try_element_at try_mod try_multiply
    try_parse_json try_subtract try_to_binary try_to_date try_to_number try_to_time try_to_timestamp
    try_url_decode try_variant_get typeof unbase64 unhex unix_date unix_micros unix_millis
    unix_seconds unix_timestamp url_decode url_encode variant_get weekday weekofyear width_bucket
    xpath xpath_boolean xpath_double xpath_float xpath_int xpath_long xpath_number xpath_short
    xpath_string xxhash64 zeroifnull zip_with
"""
SPARK_FUNCTIONS = frozenset(_SPARK_FUNCTIONS.split())

REGEX_FUNCTIONS = frozenset(
    {"regexp", "rlike", "regexp_count", "regexp_extract", "regexp_extract_all", "regexp_instr"}
)
"""The Spark functions whose second argument is a regular expression."""

_AGGREGATES = """
    any any_value approx_count_distinct approx_percentile array_agg avg bit_and bit_or bit_xor
    bool_and bool_or collect_list collect_set corr count count_if covar_pop covar_samp every first
    first_value group_concat kurtosis last last_value listagg max max_by mean median min min_by mode
    percentile percentile_approx percentile_cont percentile_disc skewness some std stddev stddev_pop
    stddev_samp string_agg sum var_pop var_samp variance row_number rank dense_rank percent_rank
    cume_dist ntile lag lead nth_value
"""
AGGREGATES = frozenset(_AGGREGATES.split())

_GENERATORS = """
    explode explode_outer inline inline_outer json_tuple posexplode posexplode_outer stack
"""
GENERATORS = frozenset(_GENERATORS.split())

UNAVAILABLE = {
    "MURMUR64": "Spark has no 128-bit murmur hash; xxhash64(...) is a hash of 64 bits too",
}


def unavailable_error(name: str) -> SqlError:
    """The error for a function that a query cannot call."""
    lower, upper = name.lower(), name.upper()
    if lower in AGGREGATES:
        return SqlError(
            f"{upper} aggregates several rows: the Sql transform works row by row, without"
            " aggregates and windows"
        )
    if lower in GENERATORS:
        return SqlError(
            f"{upper} generates rows: write it as LATERAL VIEW EXPLODE(...) AS column after FROM"
        )
    if upper in UNAVAILABLE:
        return SqlError(f"{upper} is not available: {UNAVAILABLE[upper]}")
    return SqlError(
        f"there is no function {name}",
        suggestion=closest_match(upper, [*FUNCTIONS, *(n.upper() for n in SPARK_FUNCTIONS)]),
    )
