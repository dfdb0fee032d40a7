"""What counts of several documents: of each subject what was measured last on that device."""

from typing import Any

from benchmarks.newest import merged, surviving

MACHINE = {"machine": "2 cores, Linux 6", "command": "fairgv-bench mmr"}


def run(mixture: str, throughput: float, *weights: int) -> dict[str, Any]:
    guests = [{"weight": weight, "throughput": throughput} for weight in weights]
    return {"kind": "together", "mixture": mixture, "system": "fair", "guests": guests}


def document(date: str, *records: dict[str, Any], device: str = "NVIDIA H200", repetitions: int = 1) -> dict[str, Any]:
    head = {"experiment": "mmr", "device": device, "date": date, "guests": "process", "repetitions": repetitions}
    return {**MACHINE, **head, "records": list(records)}


def test_the_newest_of_each_subject_counts() -> None:
    newer = document("2026-01-03", run("scan", 3.0, 1, 2))
    older = document("2026-01-02", run("scan", 2.0, 1, 2), run("nw", 2.0, 1, 2), run("scan", 2.0, 1, 1))
    kept = surviving([newer, older])
    assert kept == [newer, {**older, "records": older["records"][1:]}]


def test_what_has_nothing_newest_to_say_is_left_out() -> None:
    newer, older = document("2026-01-03", run("scan", 3.0, 1, 2)), document("2026-01-02", run("scan", 2.0, 1, 2))
    assert surviving([older, newer]) == [newer]


def test_of_one_day_the_one_with_more_repetitions_counts() -> None:
    short, long = (
        document("2026-01-03", run("scan", 3.0, 1)),
        document("2026-01-03", run("scan", 2.0, 1), repetitions=5),
    )
    assert surviving([long, short]) == [long]


def test_repetitions_of_one_document_stay_together() -> None:
    both = document("2026-01-03", run("scan", 3.0, 1), run("scan", 4.0, 1))
    assert surviving([both]) == [both]


def test_a_list_may_tell_what_a_record_is_about() -> None:
    """As of a port beside throttles, whose guests have no weights of their own in the record."""

    def shares(date: str, *weights: list[int]) -> dict[str, Any]:
        records = [
            {"kind": "gloop shares", "target": "grep", "weights": each, "guests": [{"throughput": 1.0}]}
            for each in weights
        ]
        return {**document(date, *records), "experiment": "gloop"}

    older, newer = shares("2026-01-02", [1, 1], [2, 1]), shares("2026-01-03", [2, 1])
    assert surviving([older, newer]) == [{**older, "records": older["records"][:1]}, newer]


def test_another_device_is_another_subject() -> None:
    here, there = (
        document("2026-01-03", run("scan", 3.0, 1)),
        document("2026-01-02", run("scan", 2.0, 1), device="softgpu"),
    )
    assert surviving([here, there]) == [here, there]
    assert [each["device"] for each in merged([here, there])] == ["NVIDIA H200", "softgpu"]


def test_merged_documents_tell_where_their_records_are_from() -> None:
    newer, older = document("2026-01-03", run("scan", 3.0, 1)), document("2026-01-02", run("nw", 2.0, 1))
    [one] = merged([older, newer])
    assert one["date"] == "2026-01-03"
    assert [record["mixture"] for record in one["records"]] == ["nw", "scan"]
    assert [line[:10] for line in one["origins"]] == ["2026-01-02", "2026-01-03"]


def test_steps_of_frameworks_are_subjects_too() -> None:
    def steps(date: str, **ratios: float) -> dict[str, Any]:
        head = {"experiment": "frameworks", "device": "NVIDIA H200", "date": date}
        return {**MACHINE, **head, "steps": [{"name": name, "ratio": ratio} for name, ratio in ratios.items()]}

    [one] = merged([steps("2026-01-02", triton=1.2, jax=1.0), steps("2026-01-03", triton=0.9)])
    assert one["steps"] == [{"name": "jax", "ratio": 1.0}, {"name": "triton", "ratio": 0.9}]
