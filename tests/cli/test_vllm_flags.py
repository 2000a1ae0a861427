import pytest
import typer
from typer.testing import CliRunner, Result

from octavo.cli.flags import FLAGS
from octavo.cli.vllm_flags import FOREIGN_FLAGS, ForeignFlag, accepts_vllm_flags
from octavo.errors import ConfigError
from support.command import octavo


def invoke(*arguments: str) -> Result:
    """Run a command that takes no other flags."""
    app = typer.Typer(pretty_exceptions_enable=False)

    @app.command()
    @accepts_vllm_flags
    def command() -> None:
        typer.echo("ran")

    return CliRunner().invoke(app, list(arguments))


def given(flag: ForeignFlag, value: str) -> tuple[str, ...]:
    return (flag.name,) if flag.is_switch else (flag.name, value)


@pytest.mark.parametrize(
    "flag", [f for f in FOREIGN_FLAGS if f.harmless is None], ids=lambda f: f.name
)
def test_flags_without_effect_are_accepted_with_one_line(
    flag: ForeignFlag, caplog: pytest.LogCaptureFixture
) -> None:
    result = invoke(*given(flag, "7"))
    assert result.exit_code == 0, result.output
    assert [record.getMessage() for record in caplog.records] == [
        f"{flag.name} has no effect: {flag.reason}"
    ]


@pytest.mark.parametrize(
    "flag", [f for f in FOREIGN_FLAGS if f.harmless is not None], ids=lambda f: f.name
)
def test_flags_that_would_matter_are_refused(flag: ForeignFlag) -> None:
    result = invoke(*given(flag, "7"))
    assert isinstance(result.exception, ConfigError)
    assert flag.name in str(result.exception)
    for value in flag.harmless or ():
        assert invoke(*given(flag, value)).exit_code == 0


def test_short_and_negated_spellings(caplog: pytest.LogCaptureFixture) -> None:
    assert invoke("-tp", "1").exit_code == 0
    assert isinstance(invoke("-tp", "2").exception, ConfigError)
    assert invoke("--no-enable-lora").exit_code == 0
    assert not caplog.records


def test_they_are_not_in_the_help_and_do_not_clash() -> None:
    assert "--enforce-eager" not in invoke("--help").output
    own = {name for flag in FLAGS for name in flag.spellings}
    assert not own & {name for flag in FOREIGN_FLAGS for name in flag.spellings}


def test_serve_refuses_before_it_does_anything() -> None:
    result = octavo("serve", "--hf-token", "secret")
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.startswith("octavo: --hf-token is a flag of vLLM")
    assert len(result.stderr.splitlines()) == 1
    assert "secret" not in result.stderr
