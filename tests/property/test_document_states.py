"""Patches of every version, made here by separate rules, lead from one document to the other."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.connectors.mongodb.documents.extended import ExtendedDocument, TypedValue, read, write
from tailrace.connectors.mongodb.documents.states import patched, state_after
from tailrace.errors import ConversionError
from tests.extent import examples

_NAMES = st.sampled_from(["a", "b", "c", "d", "0", "1", "é"])
_SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**31), 2**31 - 1),
    st.floats(allow_nan=False),
    st.text(max_size=4),
    st.integers(-(2**63), 2**63 - 1).map(lambda value: TypedValue("int64", value)),
    st.integers(-(2**63), 2**63 - 1).map(lambda value: TypedValue("date", value)),
    st.tuples(st.binary(max_size=3), st.integers(0, 255)).map(lambda value: TypedValue("binary", value)),
    st.sampled_from(
        [
            TypedValue("decimal", "1.50"),
            TypedValue("objectId", "5f0d1a2b3c4d5e6f708192a3"),
            TypedValue("timestamp", (2**32 - 1, 2**31)),
            TypedValue("regex", ('a"', "i")),
            TypedValue("code", "f()"),
            TypedValue("scopedCode", ("f()", ExtendedDocument(a=1))),
            TypedValue("symbol", "s"),
            TypedValue("undefined", None),
            TypedValue("minKey", None),
            TypedValue("maxKey", None),
        ]
    ),
)


def _documents(values: st.SearchStrategy[Any]) -> st.SearchStrategy[ExtendedDocument]:
    return st.dictionaries(_NAMES, values, max_size=4).map(ExtendedDocument)


_VALUES = st.recursive(
    _SCALARS, lambda inner: st.one_of(_documents(inner), st.lists(inner, max_size=4)), max_leaves=10
)  # fmt: skip
_WHOLE = _documents(_VALUES)


def same(one: Any, other: Any) -> bool:
    """Return True if two documents are equal and have their fields in the same order."""
    return write(one) == write(other)


def ordered_like(before: ExtendedDocument, after: ExtendedDocument) -> ExtendedDocument:
    """Return the fields of `after` in a server's order: earlier fields first, in their order, at every level."""
    names = [name for name in before if name in after] + [name for name in after if name not in before]
    found = ExtendedDocument()
    for name in names:
        old, new = before.get(name), after[name]
        both = isinstance(old, ExtendedDocument) and isinstance(new, ExtendedDocument)
        found[name] = ordered_like(old, new) if both else new  # type: ignore[arg-type]
    return found


def difference(before: ExtendedDocument, after: ExtendedDocument) -> ExtendedDocument:
    """Return the `$v: 2` diff between two documents whose common fields are in the same order."""
    diff = ExtendedDocument()
    deleted = ExtendedDocument((name, False) for name in before if name not in after)
    updated, inserted, inside = ExtendedDocument(), ExtendedDocument(), ExtendedDocument()
    for name, value in after.items():
        if name not in before:
            inserted[name] = value
        elif isinstance(value, ExtendedDocument) and isinstance(before[name], ExtendedDocument):
            inner = difference(before[name], value)
            if inner:
                inside["s" + name] = inner
        elif isinstance(value, list) and isinstance(before[name], list):
            inner = array_difference(before[name], value)
            if len(inner) > 1:
                inside["s" + name] = inner
        elif write(value) != write(before[name]):
            updated[name] = value
    for part, told in (("d", deleted), ("u", updated), ("i", inserted)):
        if told:
            diff[part] = told
    return ExtendedDocument({**diff, **inside})


def array_difference(before: list[Any], after: list[Any]) -> ExtendedDocument:
    diff = ExtendedDocument(a=True)
    if len(after) < len(before):
        diff["l"] = len(after)
    for index, value in enumerate(after):
        if index >= len(before):
            diff[f"u{index}"] = value
        elif isinstance(value, ExtendedDocument) and isinstance(before[index], ExtendedDocument):
            after[index] = ordered_like(before[index], value)
            inner = difference(before[index], after[index])
            if inner:
                diff[f"s{index}"] = inner
        elif write(value) != write(before[index]):
            diff[f"u{index}"] = value
    return diff


@settings(max_examples=examples(200), deadline=None)
@given(_VALUES)
def test_a_text_that_is_read_is_written_the_same(value: Any) -> None:
    text = write(value)
    assert write(read(text)) == text


@settings(max_examples=examples(200), deadline=None)
@given(_WHOLE, _WHOLE)
def test_a_diff_leads_to_the_document_that_it_was_made_for(before: ExtendedDocument, after: ExtendedDocument) -> None:
    after = ordered_like(before, after)
    diff = difference(before, after)
    patch = read(write(ExtendedDocument({"$v": 2, "diff": diff})))
    assert same(patched(copy.deepcopy(before), patch), after)


@settings(max_examples=examples(200), deadline=None)
@given(_WHOLE, _WHOLE)
def test_set_and_unset_lead_to_the_document(before: ExtendedDocument, after: ExtendedDocument) -> None:
    after = ordered_like(before, after)
    changed = ExtendedDocument(
        (name, value) for name, value in after.items() if write(value) != write(before.get(name, after))
    )
    removed = [name for name in before if name not in after]
    patch = ExtendedDocument({"$v": 1, "$set": changed, "$unset": ExtendedDocument((name, True) for name in removed)})
    text = json.dumps({"op": "u", "after": None, "patch": write(patch), "filter": None})
    assert same(state_after(copy.deepcopy(before), json.loads(text)), after)
    told = {"updatedFields": write(changed), "removedFields": removed or None, "truncatedArrays": None}
    event = {"op": "u", "before": None, "after": None, "updateDescription": told}
    assert same(state_after(copy.deepcopy(before), event), after)


def state(text: str, payload: dict[str, Any]) -> str | None:
    before = read(text) if text else None
    found = state_after(before, {"after": None, **payload})
    return None if found is None else write(found)


@pytest.mark.parametrize(
    ("patch", "wanted"),
    [
        ('{"$set": {"a.b": 2,"n.m": 1}}', '{"_id": 1,"a": {"b": 2},"l": [1,{"x": 1}],"n": {"m": 1}}'),
        ('{"$v": 1,"$set": {"l.1.x": 2,"l.3": "z"}}', '{"_id": 1,"a": {"b": 1},"l": [1,{"x": 2},null,"z"]}'),
        ('{"$v": 1,"$unset": {"a.b": true,"l.0": true,"q.r": true}}', '{"_id": 1,"a": {},"l": [null,{"x": 1}]}'),
        ('{"$v": 1,"$set": {"a.0": 5}}', '{"_id": 1,"a": {"b": 1,"0": 5},"l": [1,{"x": 1}]}'),
        ('{"_id": 1,"whole": true}', '{"_id": 1,"whole": true}'),
        ('{"$v": 2,"diff": {"i": {"a": 9}}}', '{"_id": 1,"l": [1,{"x": 1}],"a": 9}'),
        ('{"$v": 2,"diff": {"sl": {"a": true,"l": 1}}}', '{"_id": 1,"a": {"b": 1},"l": [1]}'),
        ('{"$v": 2,"diff": {"sl": {"a": true,"l": 3}}}', '{"_id": 1,"a": {"b": 1},"l": [1,{"x": 1},null]}'),
        ('{"$v": 2,"diff": {"sl": {"a": true,"s1": {"u": {"x": 3}}}}}', '{"_id": 1,"a": {"b": 1},"l": [1,{"x": 3}]}'),
        ('{"$v": 2,"diff": {"updatedFields": {"a.b": 7},"removedFields": ["l"],"truncatedArrays": []}}',
         '{"_id": 1,"a": {"b": 7}}'),
    ],
)  # fmt: skip
def test_patches_of_the_oplog_are_applied(patch: str, wanted: str) -> None:
    assert state('{"_id": 1,"a": {"b": 1},"l": [1,{"x": 1}]}', {"op": "u", "patch": patch}) == wanted


def test_arrays_that_became_shorter_are_cut() -> None:
    told = {
        "updatedFields": '{"l.0": {"$numberDouble": "NaN"}, "d": {"$date": "2019-05-27T13:58:28.12Z"}}',
        "removedFields": None,
        "truncatedArrays": [{"field": "a.l", "size": 1}],
    }
    wanted = '{"_id": 1,"a": {"l": [1]},"l": [NaN],"d": {"$date": 1558965508120}}'
    assert state('{"_id": 1,"a": {"l": [1,2,3]},"l": [0]}', {"op": "u", "updateDescription": told}) == wanted


def test_without_the_document_an_update_alone_leaves_it_unknown() -> None:
    assert state("", {"op": "u", "patch": '{"$set": {"a": 1}}'}) is None
    assert state("", {"op": "u", "patch": '{"_id": 1,"a": 1}'}) == '{"_id": 1,"a": 1}'
    assert state('{"_id": 1}', {"op": "d", "filter": '{"_id": 1}'}) is None
    assert state("", {"op": "c", "after": '{"_id": 1}'}) == '{"_id": 1}'


@pytest.mark.parametrize(
    "patch",
    [
        '{"$v": 2,"diff": {"x": {}}}',
        '{"$v": 2,"diff": {"sa": {"a": true,"u0": 1}}}',
        '{"$v": 2,"diff": {"sq": {"u": {"b": 1}}}}',
        '{"$set": {"l.x": 1}}',
        '{"$set": {"a.b.c": 1}}',
        '{"$inc": {"a": 1}}',
        '{"$date": 5}',
    ],
)
def test_a_patch_that_does_not_fit_is_an_error(patch: str) -> None:
    with pytest.raises(ConversionError):
        state('{"_id": 1,"a": {"b": 1},"l": [1]}', {"op": "u", "patch": patch})
