"""Confs of Spark that decide what an expression means, how a value gets another type, and how it is written.

Each has the values that give the rows of Spark's defaults. A cluster or a user may have others: an overflow
would be NULL or another number, a date of a file another day. The engine's own sessions have the first value,
unless they have one of the values anyway (:func:`delta_cdc.spark.sessions.private_session`).
"""

from __future__ import annotations

#: Confs that are true by default.
_TRUE = (
    "ansi.enabled",
    "chunkBase64String.enabled",
    "decimalOperations.allowPrecisionLoss",
    "json.enableExactStringParsing",
    "json.enablePartialResults",
    "jsonGenerator.ignoreNullFields",
    "legacy.followThreeValuedLogicInArrayExists",
    "legacy.literal.pickMinimumPrecision",
    "parquet.inferTimestampNTZ.enabled",
    "parquet.int96AsTimestamp",
    "readSideCharPadding",
    # Without it, Spark knows no table by its path.
    "runSQLOnFiles",
)
#: Confs that are false by default.
_FALSE = (
    "ansi.doubleQuotedIdentifiers",
    "caseSensitive",
    "charAsVarchar",
    "function.concatBinaryAsString",
    "function.eltOutputAsString",
    "legacy.allowNegativeScaleOfDecimal",
    "legacy.allowNullComparisonResultInArraySort",
    "legacy.allowZeroIndexInFormatString",
    "legacy.bangEqualsNot",
    "legacy.castComplexTypesToString.enabled",
    "legacy.charVarcharAsString",
    "legacy.codingErrorAction",
    "legacy.collationAwareHashFunctions",
    "legacy.consecutiveStringLiterals.enabled",
    "legacy.createEmptyCollectionUsingStringType",
    "legacy.decimal.retainFractionDigitsOnTruncate",
    "legacy.disableMapKeyNormalization",
    "legacy.exponentLiteralAsDecimal.enabled",
    "legacy.fromDayTimeString.enabled",
    "legacy.interval.enabled",
    "legacy.javaCharsets",
    "legacy.json.allowEmptyString.enabled",
    "legacy.lpadRpadAlwaysReturnString",
    "legacy.negativeIndexInArrayInsert",
    "legacy.noCharPaddingInPredicate",
    "legacy.parquet.nanosAsLong",
    "legacy.truncateForEmptyRegexSplit",
    "legacy.typeCoercion.datetimeToString.enabled",
    "parquet.binaryAsString",
    "parquet.int96TimestampConversion",
    "parser.escapedStringLiterals",
    "parser.quotedRegexColumnNames",
    "variant.allowDuplicateKeys",
)
#: Each conf, and its values.
MEANING = {
    "spark.sql.storeAssignmentPolicy": ("ANSI",),
    "spark.sql.mapKeyDedupPolicy": ("EXCEPTION",),
    "spark.sql.timestampType": ("TIMESTAMP_LTZ",),
    # The older formatter knows milliseconds only, and writes them as if they were microseconds.
    "spark.sql.legacy.timeParserPolicy": ("CORRECTED",),
    "spark.sql.sources.partitionOverwriteMode": ("STATIC",),
    "spark.sql.parquet.outputTimestampType": ("TIMESTAMP_MICROS", "INT96"),
    # Dates in the older calendar: only Spark writes and reads them as such.
    "spark.sql.parquet.datetimeRebaseModeInWrite": ("CORRECTED",),
    "spark.sql.parquet.int96RebaseModeInWrite": ("CORRECTED",),
    "spark.sql.parquet.datetimeRebaseModeInRead": ("CORRECTED",),
    "spark.sql.parquet.int96RebaseModeInRead": ("CORRECTED",),
    **{f"spark.sql.{name}": ("true",) for name in _TRUE},
    **{f"spark.sql.{name}": ("false",) for name in _FALSE},
}
