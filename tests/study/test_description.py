"""The settings that study.toml may have, and the study that its folder keeps."""

from __future__ import annotations

from pathlib import Path

import pytest

from mpicoll.errors import ArgumentError
from mpicoll.study.description import Description, parse
from mpicoll.study.running import load_study, lock_folder, store


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("launches = 0", r"`int` >= 1 - at `\$.launches`"),
        ("launchs = 3", "unknown field `launchs`"),
        ("factors = { sizes = ['4X'] }", r"\$.factors.sizes: '4X' is not a size"),
        ("factors = { sizes = [] }", r"length >= 1 - at `\$.factors.sizes`"),
        ("factors = { collectives = ['allfoo'] }", r"\$.factors.collectives: .*allfoo"),
        ("factors = { transports = ['pigeon'] }", r"\$.factors.transports: 'pigeon'"),
        ("factors = { algorithms = ['none'] }", r"\$.factors.algorithms: .* algorithm 'none'"),
        ("factors = { algorithms = ['ring@pigeon'] }", r"algorithms: unknown transport 'pigeon'"),
        ("factors = { algorithms = ['auto@cma'] }", r"algorithms: .* algorithm 'auto@cma'"),
        ("factors = { algorithms = ['knomial(radix=0)'] }", r"algorithms: .*radix"),
        (
            "factors = { collectives = ['bcast'], algorithms = ['native:reduce+broadcast'] }",
            r"algorithms: .* algorithm 'native:reduce\+broadcast'",
        ),
        (
            "factors = { operators = ['sum', 'band'] }",
            "operators: op 'band' is not defined",
        ),
        ("factors = { collectives = ['scan'], operators = ['avg'] }", "operators: scan has no op"),
        *(
            (
                f"environments = [{{ name = 'x' }}, {{ name = {name!r} }}]",
                r"\[1\].name: .* is no name",
            )
            for name in ("../x", "a/b", ".", "..", "", "-n", "é", 41 * "n", "a b")
        ),
        (r'environments = [{ name = "con\n" }]', r"\$.environments\[0\].name: 'con\\n' is no name"),
        (r'environments = [{ name = "a\u001b[31m" }]', r"\$.environments\[0\].name: .* is no name"),
        ("environments = [{ name = 'x' }, { name = 'X' }]", "X differs from x in upper and lower"),
        (r'environments = [{ name = "x", launcher = "a\n" }]', r"launcher"),
        (r'environments = [{ name = "x", variables = { "A\n" = "1" } }]', r"variables"),
        (r'factors = { collectives = ["bcast\n"] }', r"collectives"),
        ("environments = [{ name = 'x', threads = ['many'] }]", r"threads"),
        ("environments = [{ name = 'x' }, { name = 'x' }]", "two are called x"),
        (r'environments = [{ name = "x", launcher = "a\u0000" }]', r"launcher"),
        (r'environments = [{ name = "x", variables = { A = "\u0000" } }]', r"variables"),
        (r'environments = [{ name = "x", variables = { "A=B" = "1" } }]', r"variables"),
        ("environments = [{ name = 'x', venv = 'a', python = 'b' }]", "give one of them"),
        ("environments = [{ name = 'x', group = 'nccl' }]", "group nccl is torch.distributed's"),
        ("seed = ", "study.toml"),
        ("minutes = nan", "minutes"),
        ("seed = " + "9" * 5000, "4300 digits"),
        ("a = " + "[" * 50_000, "recursion"),
        ("seed = 1\xff", "study.toml"),
    ],
)
def test_a_wrong_description_is_refused_by_its_key(text: str, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        parse(text.encode(), "study.toml")


@pytest.mark.parametrize(
    "factors",
    [
        "dtypes = ['float32', 'int32'], operators = ['band', 'sum']",
        "collectives = ['scan', 'allreduce'], operators = ['avg', 'sum']",
        "collectives = ['broadcast'], operators = ['band']",
    ],
)
def test_operators_may_fit_some_dtypes_and_collectives_alone(factors: str) -> None:
    parse(f"factors = {{ {factors} }}".encode(), "study.toml")


@pytest.mark.parametrize(("launches", "lower", "upper"), [(10, 6, 15), (1, 1, 1), (20, 12, 30)])
def test_the_number_of_launches_adapts(launches: int, lower: int, upper: int) -> None:
    study = Description(launches=launches)
    assert (study.min_launches, study.max_launches) == (lower, upper)


def test_a_folder_keeps_one_study(tmp_path: Path) -> None:
    folder = tmp_path / "made"
    with lock_folder(folder):
        store(Description(seed=3), folder)
        store(Description(seed=3), folder)
        assert load_study(folder) == Description(seed=3)
        with pytest.raises(ArgumentError, match="has another study"):
            store(Description(seed=4), folder)


def test_a_study_that_has_begun_takes_more_minutes(tmp_path: Path) -> None:
    store(Description(seed=3, minutes=1.0), tmp_path)
    store(Description(seed=3, minutes=20.0), tmp_path)
    assert load_study(tmp_path) == Description(seed=3, minutes=20.0)


@pytest.mark.parametrize(
    "text", ["{", "[" * 100_000, '{"factors": {"sizes": ["4X"]}}', '{"seed": 9' + "9" * 5000 + "}"]
)
def test_a_damaged_study_is_named(text: str, tmp_path: Path) -> None:
    (tmp_path / "study.json").write_text(text)
    with pytest.raises(ArgumentError, match=r"study.json: .*: remove it"):
        load_study(tmp_path)
