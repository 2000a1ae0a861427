"""The tables as a page of the documentation."""

from support.field_effects.endpoints import ENDPOINTS
from support.field_effects.rows import Effect, Elsewhere, Refusal, Row


def page() -> str:
    """docs/reference/fields.md."""
    lines = [
        "# What each field does\n",
        "<!-- Written by `make docs` from tests/support/field_effects. -->\n",
        "Every field that a request may have, and the test that it does something: what changes in an answer with this value, "
        "that the value is refused with this status, that it changes nothing and why, or where another test shows it. "
        "tests/system/test_field_effects.py asks a server for each of them. Fields that are known and not taken: "
        "[the HTTP API](http.md).\n",
    ]
    for endpoint in ENDPOINTS:
        lines += [
            f"## {endpoint.title}\n",
            "| field | value | what the test sees |",
            "| --- | --- | --- |",
        ]
        for name, row in sorted(endpoint.table.items()):
            lines.append(f"| `{name}` | {' | '.join(_cells(row))} |")
        lines.append("")
    return "\n".join(lines)


def _cells(row: Row) -> tuple[str, str]:
    if isinstance(row, Elsewhere):
        return "", f"[{row.test}](../../{row.file})"
    if isinstance(row, Effect):
        return _shown(row.value), f"{row.seen.what} changes"
    if isinstance(row, Refusal):
        return _shown(row.value), f"refused with {row.status}"
    return _shown(row.value), f"nothing changes: {row.reason}"


def _shown(value: object) -> str:
    if callable(value):
        return "of the answer without it"
    text = repr(value)
    text = text if len(text) <= 60 else text[:60] + "…"
    return f"`{text}`".replace("|", "\\|")
