"""Each row of what elastic shares and turns by bursts must show has a claim, a command that measures it, and a record in which it is found."""

import json
from typing import Any

import pytest

from benchmarks.cli import conduct_of
from benchmarks.experiments import EXPERIMENTS
from benchmarks.paper import claims
from benchmarks.promises import RESULTS
from benchmarks.suite import SUITES

ROWS = {
    "gemini_joins": "elastic",
    "gemini_limits_half": "elastic",
    "gemini_limits_far": "elastic",
    "gemini_one_limit": "elastic",
    "gemini_alone": "clients",
    "gemini_clients": "clients",
    "gemini_programs": "clients",
    "gemini_requests": "bursts",
    "gemini_chosen": "bursts",
    "gemini_tokens": "kept-turns",
    "gemini_turns": "bursts",
    "gemini_overuse": "bursts",
    "six_guests_bursts": "mmr",
}
"""By claim, what measures it."""
NOT_ON_A_GPU = {"gemini_tokens"}


def recorded(claim: str) -> list[dict[str, Any]]:
    """Documents of the experiment that have something to say of a claim, on any device."""
    documents = [json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))]
    mine = [document for document in documents if document["experiment"] == ROWS[claim]]
    return [
        document
        for document in mine
        if any(finding.name == claim for finding in EXPERIMENTS[document["experiment"]].findings(document))
    ]


@pytest.mark.parametrize("claim", ROWS)
def test_each_has_a_claim_and_a_record_in_which_it_is_found(claim: str) -> None:
    assert claim in claims()
    assert recorded(claim), f"what fairgv-bench {ROWS[claim]} finds of {claim} in {RESULTS}"


def test_the_suite_for_a_gpu_measures_all_of_them() -> None:
    conducts = [conduct_of(entry.words.split()) for entry in SUITES["gemini-1"].entries]
    measured = {conduct.experiment.name for conduct in conducts}
    assert measured == {experiment for claim, experiment in ROWS.items() if claim not in NOT_ON_A_GPU}
    parts = {part for conduct in conducts for part in getattr(conduct.options, "parts", ())}
    assert parts == {"lengths", "joins", "limits", "alone", "clients", "programs"}
    assert any(getattr(conduct.options, "bursts", False) for conduct in conducts)
