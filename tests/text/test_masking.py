"""Which credentials are masked in a text, and where they end."""

from __future__ import annotations

import pytest

from mpicoll.machine.variables import relevant_variables
from mpicoll.text.masking import MASK, masked, masked_arguments

TEXTS = {
    # URLs
    "http://me:hunter2@host": "http://***@host",
    "http://me:hun@ter2@host/x": "http://***@host/x",
    "http://me:hun/ter2@host/x": "http://***@host/x",
    "tcp://hunter2@host:1/x": "tcp://***@host:1/x",
    "redis://:hunter2@a,redis://:hunter2@b": "redis://***@a,redis://***@b",
    "x?api_key=hunter2&y=1": "x?api_key=***&y=1",
    # options and assignments
    "--password=hun,ter2": "--password=***",
    "--password=hun;ter2 ring": "--password=*** ring",
    "--password=hun&ter2 ring": "--password=*** ring",
    r"--password=hun\ ter2 ring": "--password=*** ring",
    "--password='hun ter2' ring": "--password='***' ring",
    "--password='hun'ter2 ring": "--password=*** ring",
    "--auth-token hunter2 ring": "--auth-token *** ring",
    "env 'API_KEY=hun ter2' ring": "env 'API_KEY=***' ring",
    "a,password=hunter2,b": "a,password=***",
    "password='hun ter2": "password='***",
    # headers, their schemes of several words, JSON and YAML
    "Authorization: Bearer hunter2": "Authorization: ***",
    "-H 'Authorization: Basic hunter2' -v": "-H 'Authorization: ***' -v",
    "Authorization=Bearer hunter2": "Authorization=***",
    'Authorization: Digest username="me", response="hunter2"': "Authorization: ***",
    "Cookie: a=1; session=hunter2\nAccept: x": "Cookie: ***\nAccept: x",
    "Proxy: Bearer hunter2": "Proxy: Bearer ***",
    "password: hun, ter2": "password: ***",
    '{"auth_token": "hun ter2", "x": 1}': '{"auth_token": "***", "x": 1}',
    r'{"token": "hun\"ter2", "x": 1}': '{"token": "***", "x": 1}',
    r"{\"token\": \"hun ter2\", \"x\": 1}": r"{\"token\": \"***\", \"x\": 1}",
    '{"tokens": ["hun", "ter2"]}': '{"tokens": ***',
    "eyJhunter2xyz.eyJ0.hunter2": "***",
}


@pytest.mark.parametrize("text", TEXTS)
def test_a_secret_is_masked_to_its_end(text: str) -> None:
    assert masked(text) == TEXTS[text]
    assert masked(TEXTS[text]) == TEXTS[text]
    assert relevant_variables({"NCCL_NET": text}) == {"NCCL_NET": TEXTS[text]}


@pytest.mark.parametrize("text", ["tcp://host:29500", "a@b", "/usr/lib/x.so", "ring,native", "1"])
def test_other_values_stay(text: str) -> None:
    assert masked(text) == text and masked_arguments(["-J", text]) == ["-J", text]


@pytest.mark.parametrize(
    "arguments",
    [["--password=hun ter2"], ["API_KEY=hun ter2"], ["--token", "hun ter2"],
     ["-H", "Authorization: Bearer hun ter2"], ["-H", "Authorization:", "Bearer", "hunter2"],
     ["env", "TOKEN=", "hunter2"]],
)  # fmt: skip
def test_an_argument_is_masked_to_its_end(arguments: list[str]) -> None:
    shown = " ".join(masked_arguments([*arguments, "ring"]))
    assert "hun" not in shown and "ter2" not in shown
    assert MASK in shown and shown.endswith(" ring")
