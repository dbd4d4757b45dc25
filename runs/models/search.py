"""What search looks up in cases and results: the words of their texts with their index, and the tools called.

Everything that writes or removes these texts calls `add`, or `refresh`, in the same transaction. The index follows
the rows by itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from django.db import connection, models, transaction
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.backends.ddl_references import Statement
from django.db.models.expressions import RawSQL
from django.db.models.functions import Concat

from runs.models.database import among, delete_rows, insert_rows
from runs.models.results import EvaluatorScore, Result, ResultOutput
from runs.models.runs import Run
from runs.models.suites import Case, Suite
from runs.words import searchable

# FTS5 writes its index to the disk after each statement, which takes longer than everything else a row needs.
ROWS_AT_ONCE = 100
# A phrase can have hundreds of words, and PostgreSQL repeats them for each run. The longest are rare enough.
MAX_LOOKED_UP = 8
# To look up more runs in SQLite's index takes longer than to look at the hits of all.
MAX_SCOPES = 8
Trace = Sequence[Mapping[str, Any]]
NO_INDEX: Mapping[str, Any] = {
    "on_delete": models.DO_NOTHING,
    "related_name": "+",
    "db_index": False,
    "db_constraint": False,
}


@contextmanager
def exact_lookups() -> Iterator[None]:
    """Let PostgreSQL look words up in their index, with the memory to list a million rows.

    Without it, it would note only their pages, and read the text of every row on them. Asked for a few rows of many,
    it would read the table, hoping to meet them soon.
    """
    if connection.vendor != "postgresql":
        yield
        return
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SET LOCAL work_mem = '64MB'; SET LOCAL enable_seqscan = off")
        yield


class InRows(models.Func):
    """Whether columns of a row are those of a row of a query, which has them in the same order.

    PostgreSQL looks the rows up once and then compares. Joined, two such lists are compared row by row where it
    guesses that they are short: it cannot know how many rows have a word. SQLite never joins them.
    """

    output_field = models.BooleanField()
    conditional = True

    def __init__(self, columns: Sequence[str], rows: models.QuerySet[Any, Any]) -> None:
        """Take the columns and the rows."""
        super().__init__(*map(models.F, columns), models.Subquery(rows))

    def as_sqlite(self, compiler: Any, connection: Any, **context: Any) -> Any:
        """Write the comparison."""
        compiled = [compiler.compile(one) for one in self.source_expressions]
        *columns, rows = (sql for sql, _ in compiled)
        return f"(({', '.join(columns)}) IN {rows})", [one for _, some in compiled for one in some]

    def as_postgresql(self, compiler: Any, connection: Any, **context: Any) -> Any:
        """Hide the comparison from the planner of joins."""
        sql, values = self.as_sqlite(compiler, connection, **context)
        return f"({sql} IS TRUE)", values


class WordIndex(models.Index):
    """Finds the words of columns by their beginnings, among the rows of some runs or suites.

    `fields` are the column of the run or suite, and those with the words. PostgreSQL has a GIN index with each word
    after its run, such as `7/refund`: a word that every run has is found in one without a look at the others. SQLite
    has a table of FTS5 with the name of the index and triggers that keep it in step.
    """

    def create_sql(
        self,
        model: type[models.Model],
        schema_editor: BaseDatabaseSchemaEditor,
        using: str = "",
        **options: Any,
    ) -> Statement:
        """Return the statement that makes the index; on SQLite the triggers follow it."""
        scope, *columns = (_column(model, name) for name in self.fields)
        names = {"table": model._meta.db_table, "index": self.name}
        if schema_editor.connection.vendor == "postgresql":
            vectors = (f"({VECTOR % {'scope': scope, 'column': column}})" for column in columns)
            return Statement(GIN_INDEX, **names, vectors=", ".join(vectors))
        key, columns = str(model._meta.pk.column), [scope, *columns]
        names |= {"key": key, "columns": ", ".join(columns)}
        names |= {row: ", ".join(f"{row}.{name}" for name in (key, *columns)) for row in OLD_NEW}
        schema_editor.deferred_sql += [Statement(one, **names) for one in TRIGGERS]
        return Statement(FTS_TABLE, **names)

    def remove_sql(
        self, model: type[models.Model], schema_editor: BaseDatabaseSchemaEditor, **options: Any
    ) -> str:
        """Return the statement that removes the index; triggers of SQLite go with their table's next change."""
        kind = "INDEX" if schema_editor.connection.vendor == "postgresql" else "TABLE"
        return f"DROP {kind} {self.name}"


def _column(model: type[models.Model], name: str) -> str:
    return next(str(field.column) for field in model._meta.concrete_fields if field.name == name)


# Cast to text, a number becomes the same text under any setting; an index can be on nothing else.
VECTOR = (
    "array_to_tsvector(string_to_array(ltrim(replace(' ' || %(column)s, ' ', "
    "' ' || %(scope)s::text || '/')), ' '))"
)
GIN_INDEX = "CREATE INDEX %(index)s ON %(table)s USING gin (%(vectors)s)"
FTS_TABLE = (
    "CREATE VIRTUAL TABLE %(index)s USING fts5(%(columns)s, content='%(table)s', "
    "content_rowid='%(key)s', detail='column', tokenize='unicode61 remove_diacritics 0', prefix='2 4')"
)
OLD_NEW = ("old", "new")
ADD_ROW = "INSERT INTO %(index)s (rowid, %(columns)s) VALUES (%(new)s); "
REMOVE_ROW = "INSERT INTO %(index)s (%(index)s, rowid, %(columns)s) VALUES ('delete', %(old)s); "
TRIGGERS = (
    "CREATE TRIGGER %(index)s_insert AFTER INSERT ON %(table)s BEGIN " + ADD_ROW + "END",
    "CREATE TRIGGER %(index)s_delete AFTER DELETE ON %(table)s BEGIN " + REMOVE_ROW + "END",
    "CREATE TRIGGER %(index)s_update AFTER UPDATE ON %(table)s BEGIN "
    + REMOVE_ROW
    + ADD_ROW
    + "END",
)


class HasTerms(models.Func):
    """Whether the words of a row, after its run or suite, fulfil one of some queries of PostgreSQL."""

    output_field = models.BooleanField()

    def as_postgresql(self, compiler: Any, connection: Any, **context: Any) -> Any:
        """Repeat the expression of the index, so that the index answers."""
        (scope, column, queries), values = zip(
            *(compiler.compile(one) for one in self.source_expressions), strict=True
        )
        terms = VECTOR % {"scope": scope, "column": column}
        return f"({terms} @@ ANY ({queries}::tsquery[]))", [one for some in values for one in some]


class SearchQuerySet(models.QuerySet[Any]):
    """Rows with words to look up."""

    def with_words(
        self, column: str, wanted: Sequence[str], *, scopes: Sequence[int]
    ) -> SearchQuerySet:
        """Return the rows of some runs or suites with words in this order, of which the last may go on."""
        if not scopes:
            return self.none()
        [index] = self.model._meta.indexes
        scope_column = _column(self.model, index.fields[0])
        *whole, last = wanted
        longest = sorted(dict.fromkeys(whole), key=len, reverse=True)[:MAX_LOOKED_UP]
        rows: SearchQuerySet
        if connection.vendor == "postgresql":
            queries = [
                " & ".join([*(f"'{scope}/{word}'" for word in longest), f"'{scope}/{last}':*"])
                for scope in scopes
            ]
            any_query = RawSQL("%s", [queries])
            rows = self.filter(HasTerms(models.F(scope_column), models.F(column), any_query))
        else:
            terms = [*(f'"{word}"' for word in longest), f'"{last}"*']
            query_text = f"{column} : ({' AND '.join(terms)})"
            if len(scopes) <= MAX_SCOPES:
                places = " OR ".join(map(str, scopes))
                query_text = f"{scope_column} : ({places}) AND {query_text}"
            of_index = f"SELECT rowid FROM {index.name} WHERE {index.name} MATCH %s"  # noqa: S608 - names of columns
            found = models.Q(pk__in=RawSQL(of_index, [query_text]))  # noqa: S611 - names of columns
            rows = self.filter(found, **{f"{scope_column}__in": among(scopes)})
        if not whole:
            return rows
        # The index was asked for some of the words, and does not know their order.
        padded = Concat(models.Value(" "), column, output_field=models.TextField())
        in_order: SearchQuerySet = rows.alias(padded=padded).filter(
            padded__contains=f" {' '.join(wanted)}"
        )
        return in_order


class ResultTextQuerySet(SearchQuerySet):
    """What search looks up in results."""

    def refresh(self, run_id: int, results: Iterable[int]) -> None:
        """Derive the rows of these results of a run from their stored outputs and scores."""
        for batch in ResultOutput.objects.batches(sorted(set(results)), "text", "trace"):
            reasons: dict[int, list[str]] = defaultdict(list)
            scores = EvaluatorScore.objects.filter(result__in=among(batch)).exclude(reasoning="")
            for pk, reasoning in scores.order_by("id").values_list("result", "reasoning"):
                reasons[pk].append(reasoning)
            outputs = ResultOutput.objects.filter(result__in=among(batch))
            answers = {
                pk: (text, trace) for pk, text, trace in outputs.values_list("pk", "text", "trace")
            }
            found = Result.objects.filter(pk__in=among(batch)).order_by()
            cases = dict(found.values_list("pk", "case"))
            delete_rows(ResultText.objects.filter(result__in=among(batch)))
            self.add(
                run_id,
                (
                    (pk, case, *answers.get(pk, ("", None)), reasons[pk])
                    for pk, case in sorted(cases.items())
                ),
            )

    def add(
        self, run_id: int, answers: Iterable[tuple[int, int, str, Trace | None, Iterable[str]]]
    ) -> None:
        """Add rows of a run's results that have none: result, case, text, trace and reasons for scores."""
        rows = (
            (
                pk,
                run_id,
                case,
                searchable(text),
                searchable("\n".join(dict.fromkeys(reasons))),
                called_tools(trace),
            )
            for pk, case, text, trace, reasons in answers
        )
        searched = (row for row in rows if any(row[3:]))
        insert_rows(ResultText, RESULT_COLUMNS, searched, at_once=ROWS_AT_ONCE)


def called_tools(trace: Iterable[Mapping[str, Any]] | None) -> list[str]:
    """Return the names of the tools that a target called, in the order of their first calls."""
    return list(dict.fromkeys(step["name"] for step in trace or () if step.get("type") == "tool"))


class ResultText(models.Model):
    """The words of an answer and of its evaluators' reasoning, and the tools that were called."""

    result = models.OneToOneField(
        Result, on_delete=models.CASCADE, primary_key=True, related_name="search"
    )
    # Rows are deleted with their results: nothing looks for those of a run without words.
    run = models.ForeignKey(Run, **NO_INDEX)
    case = models.ForeignKey(Case, **NO_INDEX)
    output = models.TextField(blank=True, default="")
    reasoning = models.TextField(blank=True, default="")
    tools = models.JSONField(default=list, blank=True)

    objects = ResultTextQuerySet.as_manager()

    class Meta:
        """Found by words, in one run or all."""

        indexes = (WordIndex(fields=("run", "output", "reasoning"), name="result_words"),)

    def __str__(self) -> str:
        """Return the beginning of the answer."""
        return self.output[:80]


class CaseTextQuerySet(SearchQuerySet):
    """What search looks up in cases."""

    def add(self, suite: Suite) -> None:
        """Add the rows of the new revisions of a suite; a revision never changes."""
        new = Case.objects.filter(suite=suite, search=None).order_by()
        rows = new.values_list("pk", "suite_id", "key", "title", "input")
        insert_rows(
            CaseText,
            CASE_COLUMNS,
            (
                (
                    pk,
                    suite_id,
                    searchable(f"{key}\n{title}"),
                    searchable(conversation_text(messages)),
                )
                for pk, suite_id, key, title, messages in list(rows)
            ),
            at_once=ROWS_AT_ONCE,
        )


def conversation_text(messages: Iterable[Mapping[str, Any]]) -> str:
    """Return the texts of messages, one below the other."""
    return "\n".join(str(message.get("content") or "") for message in messages)


class CaseText(models.Model):
    """The words of a revision's key and title, and those of its input."""

    case = models.OneToOneField(
        Case, on_delete=models.CASCADE, primary_key=True, related_name="search"
    )
    suite = models.ForeignKey(Suite, **NO_INDEX)
    name = models.TextField(blank=True, default="")
    input = models.TextField(blank=True, default="")

    objects = CaseTextQuerySet.as_manager()

    class Meta:
        """Found by words, in one suite or all."""

        indexes = (WordIndex(fields=("suite", "name", "input"), name="case_words"),)

    def __str__(self) -> str:
        """Return the words of key and title."""
        return self.name


RESULT_COLUMNS = ("result_id", "run_id", "case_id", "output", "reasoning", "tools")
CASE_COLUMNS = ("case_id", "suite_id", "name", "input")
