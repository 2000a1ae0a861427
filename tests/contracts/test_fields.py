"""Every request model has a table of its fields, and every field that is known has a fate."""

import ast
import importlib
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import octavo.server
from octavo.errors import UnsupportedParameterError
from octavo.server.openai.fields import Refused, RequestBody, parse_request
from support.field_effects.endpoints import (
    ENDPOINTS,
    Endpoint,
    field_names,
    nested_model,
    set_fields,
)
from support.field_effects.rows import Elsewhere

ROOT = Path(__file__).resolve().parents[2]


def request_models() -> Iterator[type[RequestBody]]:
    """Those that nothing is derived from, of all modules of the server."""
    for module in pkgutil.walk_packages(octavo.server.__path__, "octavo.server."):
        importlib.import_module(module.name)
    pending: list[type[RequestBody]] = [RequestBody]
    while pending:
        model = pending.pop()
        derived = [m for m in model.__subclasses__() if m.__module__.startswith("octavo.")]
        pending += derived
        if not derived:
            yield model


def with_nested(model: type[RequestBody]) -> Iterator[type[RequestBody]]:
    yield model
    for info in model.model_fields.values():
        nested = nested_model(info.annotation)
        if nested is not None:
            yield from with_nested(nested)


def test_every_request_model_has_a_table() -> None:
    tested = {m for endpoint in ENDPOINTS for m in with_nested(endpoint.model)}
    assert {m.__qualname__ for m in request_models()} - {m.__qualname__ for m in tested} == set()
    assert set(request_models()) <= tested


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda endpoint: endpoint.title)
def test_a_table_has_every_field(endpoint: Endpoint) -> None:
    assert field_names(endpoint.model) == set(endpoint.table)


@pytest.mark.parametrize(
    ("name", "row"),
    [
        pytest.param(name, row, id=f"{endpoint.title}-{name}")
        for endpoint in ENDPOINTS
        for name, row in endpoint.table.items()
        if isinstance(row, Elsewhere)
    ],
)
def test_what_is_tested_elsewhere_is(name: str, row: Elsewhere) -> None:
    """There is such a test, and it, or the table that it goes through, says the field's name."""
    source = (ROOT / row.file).read_text()
    tree = ast.parse(source)
    found = [n for n in ast.walk(tree) if isinstance(n, FUNCTIONS) and n.name == row.test]
    assert len(found) == 1, f"{row.file} has no {row.test}"
    (test,) = found
    parts: list[ast.AST] = [test, *test.decorator_list]
    used = {n.id for part in parts for n in ast.walk(part) if isinstance(n, ast.Name)}
    parts += [
        n for n in tree.body if isinstance(n, ast.Assign | ast.AnnAssign) and used & targets(n)
    ]
    text = "\n".join(ast.get_source_segment(source, part) or "" for part in parts)
    assert name.rpartition(".")[2] in text


FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def targets(node: ast.Assign | ast.AnnAssign) -> set[str]:
    """The names that an assignment sets."""
    assigned = node.targets if isinstance(node, ast.Assign) else [node.target]
    return {n.id for target in assigned for n in ast.walk(target) if isinstance(n, ast.Name)}


def refused() -> Iterator[Any]:
    """Every field that is refused: the endpoint, the objects that the field stands in, its name, and why."""
    for endpoint in ENDPOINTS:
        for name, why in endpoint.known.refused.items():
            yield pytest.param(endpoint, (), name, why, id=f"{endpoint.title}-{name}")
        for outer, info in endpoint.model.model_fields.items():
            nested = nested_model(info.annotation)
            for name, why in nested.known.refused.items() if nested else ():
                yield pytest.param(endpoint, (outer,), name, why, id=f"{endpoint.title}-{name}")


@pytest.mark.parametrize(("endpoint", "inside", "name", "why"), [*refused()])
def test_a_field_that_is_not_taken_is_refused_by_name(
    endpoint: Endpoint, inside: tuple[str, ...], name: str, why: Refused
) -> None:
    base = endpoint.base[endpoint.at] if endpoint.at else endpoint.base
    path = ".".join([*inside, name])
    assert path not in endpoint.table

    def parse(value: object) -> list[str]:
        body = set_fields(base, {path: value})
        return parse_request(endpoint.model, body, endpoint.known, strict=False)[1]

    with pytest.raises(UnsupportedParameterError) as caught:
        parse({"any": "value"})
    assert str(caught.value).startswith(f"{path} is not supported: {why.reason}")
    assert caught.value.parameter == path
    assert all(parse(harmless) == [] for harmless in (None, *why.harmless))
