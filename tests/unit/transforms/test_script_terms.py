"""Parts of a record in conditions in Groovy and JavaScript: headers, schemas, texts, and null before them."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.errors import TransformError
from tests.unit.transforms.chains import CONNECT, rows
from tests.unit.transforms.test_scripting import DATA, GROOVY, JS, ROWS, UNWRAP, kept, of, refusal

HEADER = {"type": f"{CONNECT}InsertHeader", "header": "kind", "value.literal": "new"}


def with_header(condition: str, language: str = GROOVY) -> list[int]:
    """Return the ids of the rows, each with the header `kind`, that a condition keeps."""
    found = rows(UNWRAP, HEADER, of(condition, language), schema=DATA, changes=ROWS)
    return [row["value"]["id"] for row in found]


def changed(condition: str, language: str = GROOVY) -> list[str]:
    """Return the operations of the changes that a condition over whole events keeps."""
    return [row["op"] for row in rows(of(condition, language))]


@pytest.mark.parametrize("language", [GROOVY, JS])
@pytest.mark.parametrize(
    ("condition", "ids"),
    [
        ("header.kind.value == 'new'", [1, 2, 3]),
        ("header['kind'].value() == 'old'", []),
        ("headers.get('kind').value() == 'new' && value.id == 2", [2]),
        ("headers.containsKey('kind')", [1, 2, 3]),
        ("headers.get('other') == null", [1, 2, 3]),
        ("header.kind.schema().name() == null", [1, 2, 3]),
        ("header.kind.schema.version() == null", [1, 2, 3]),
    ],
)
def test_a_header_has_a_value_and_a_schema(condition: str, ids: list[int], language: str) -> None:
    assert with_header(condition, language) == ids


def test_a_header_has_nothing_else() -> None:
    with pytest.raises(TransformError, match="does not understand name at character 12"):
        with_header("header.kind.name() == 'x'")


@pytest.mark.parametrize("language", [GROOVY, JS])
@pytest.mark.parametrize(
    ("condition", "ids"),
    [
        ("value.schema().name() == 's.public.data.Value'", [1, 2, 3]),
        ("valueSchema.name == 's.public.data.Value'", [1, 2, 3]),
        ("valueSchema.version() == null", [1, 2, 3]),
        ("valueSchema.isOptional() == false", [1, 2, 3]),
        ("valueSchema.field('name').schema().isOptional()", [1, 2, 3]),
        ("valueSchema.field('id').schema().isOptional()", []),
        ("valueSchema.field('id').name() == 'id'", [1, 2, 3]),
        ("valueSchema.fields().size() == 6", [1, 2, 3]),
    ],
)
def test_a_schema_tells_its_name_its_fields_and_whether_null_is_allowed(
    condition: str, ids: list[int], language: str
) -> None:
    assert kept(condition, language) == ids


@pytest.mark.parametrize(
    ("condition", "language", "said"),
    [
        ("valueSchema.field('id').field('x') == null", GROOVY, "does not understand field"),
        ("valueSchema.size() == 1", GROOVY, "does not understand size"),
        ("value.trim() == ''", GROOVY, "does not understand trim"),
        ("headers.trim() == ''", GROOVY, "does not understand trim"),
        ("value.name.other == 1", GROOVY, "does not understand other"),
        ("value.name.length == 1", GROOVY, "does not understand length"),
        ("value.name.startsWith(value.name)", GROOVY, "needs a constant"),
        ("value.name.startsWith(1)", GROOVY, "does not understand startsWith"),
        ("value.name.substring('1') == ''", GROOVY, "does not understand substring"),
        ("value.id.trim() == ''", GROOVY, "does not understand trim"),
        ("value.part.toString() == '1.5'", GROOVY, "does not understand toString"),
        ("value.name.replace('', 'x') == ''", GROOVY, "replaces an empty text"),
        ("value.name ==~ value.name", GROOVY, "needs a constant"),
        ("value.name.length() == 7", JS, "calls length, which a text of JavaScript has as length alone"),
        ("value.live > false", GROOVY, "compares what has no order by >"),
        ("value.name > 1", GROOVY, "compares what has no order by >"),
        ("value.name + value.name == 'x'", JS, "joins two texts of which both may be null"),
        ("value.price + 1 == 2", JS, "counts with a decimal by +"),
        ("value.price ? true : false", JS, "takes a decimal for true or false"),
        ("value.price === value.price", JS, "compares a decimal by =="),
        ("(value.live ? 1 : 'x') == 1", GROOVY, "gives values of two kinds"),
    ],
)
def test_what_a_part_of_a_record_does_not_have_ends_the_query(condition: str, language: str, said: str) -> None:
    assert said in refusal(condition, language)


@pytest.mark.parametrize(
    ("condition", "ids"),
    [
        ("value.name.equals('north-1') || value.id == 3", [1, 3]),
        ("value.name?.equals('north-1')  == true", [1]),
        ("value.id?.toString() == '2'", [2]),
        ("value.id.toString() == '2'", [2]),
        ("value.name.toString() == 'null'", [3]),
        ("value.name?.size() == 7", [1]),
        ("value.name?.length() == 0", [2]),
        ("value.name?.trim() == null", [3]),
        ("value.name?.equalsIgnoreCase('NORTH-1') ? true : false", [1]),
        ("null ==~ 'x'", []),
        ("value.price > 1", [1]),
        ("value.price != null && value.price % 5 == 2.34", [1]),
        ("value.price != null && value.price + 1 == 13.34", [1]),
        ("1 in [1, 2] && value.id == 1", [1]),
        ("value.id in [1L]", "looks for a value in a list of others"),
        ("1 in [1L]", "looks for a value in a list of others"),
        ("false || value.name", [1]),
        ("true && value.id == 2", [2]),
        ("true && 'x' && value.id == 2", [2]),
        ("(false || '') == false", [1, 2, 3]),
        ("topic || value.nothing", [1, 2, 3]),
        ("value && value.id == 1", [1]),
    ],
)
def test_groovy_knows_texts_of_numbers_and_of_null(condition: str, ids: Any) -> None:
    if isinstance(ids, str):
        assert ids in refusal(condition)
    else:
        assert kept(condition) == ids


@pytest.mark.parametrize(
    ("condition", "ids"),
    [
        ("value.id.toString() == '2'", [2]),
        ("(value.id == 1 || value.name) ? true : false", [1]),
        ("(value.id == 1 && value.live) === true", [1]),
        ("value.id == 1 || value.live === null", [1, 3]),
        ("('' || 'x') == 'x' && value.id == 2", [2]),
        ("'' + value.id + value.live == '2false'", [2]),
        ("'n' + value.part == 'nnull'", [3]),
        ("value.name >= ''", [1, 2, 3]),
        ("value.part % 1 === 0.5", [1]),
        ("value.price > 12", [1]),
        ("value.name > null", []),
        ("'12' > value.big", "compares what has no order"),
    ],
)
def test_javascript_takes_null_for_zero_and_operands_for_answers(condition: str, ids: Any) -> None:
    if isinstance(ids, str):
        assert ids in refusal(condition, JS)
    else:
        assert kept(condition, JS) == ids


@pytest.mark.parametrize(
    ("condition", "operations"),
    [
        ("value?.op == 'u'", ["u"]),
        ("value?.before?.get('id') == 1", ["u", "d"]),
        ("value?.before?.item == null", ["c", "d", "tombstone"]),
        ("value?.after?.schema() == null", ["d", "tombstone"]),
    ],
)
def test_groovy_passes_null_on_where_the_question_mark_stands(condition: str, operations: list[str]) -> None:
    condition_of = {**of(condition), "null.handling.mode": "evaluate"}
    assert [row["op"] for row in rows(condition_of)] == operations


def test_without_the_question_mark_null_ends_the_query() -> None:
    with pytest.raises(TransformError, match="uses get of null at character"):
        changed("value.before.get('id') == 1")
