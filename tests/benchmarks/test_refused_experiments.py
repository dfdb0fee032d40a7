"""What `fairgv-bench elastic` and `bursts` refuse, each by its option, and what they show of nothing."""

import pytest

from benchmarks.cli import main
from benchmarks.errors import NotMeasurableError
from benchmarks.experiments import EXPERIMENTS

NAMES = ("elastic", "bursts")
OF_BOTH = [
    (("--seconds", "0"), "not above 0"),
    (("--seconds", "1e300"), "1e300 is more than 1000000000"),
    (("--repetitions", "0"), "not a whole number above 0"),
    (("--policy", "fair"), "unrecognized arguments"),
]
OF_ELASTIC = [
    (("--parts", "joins,lanes"), "there is no lanes"),
    (("--sets", "0"), "not a whole number above 0"),
    (("--seed", "dice"), "invalid int value"),
]
OF_BURSTS = [
    (("--turns-ms", "6,0.5"), "a turn lasts from 1 to 1000 ms, not 0.5"),
    (("--turns-ms", "nan"), "nan is not above 0"),
    (("--turns-ms", "6,long"), "'long' is no number"),
    (("--servers", "web"), "invalid choice: 'web'"),
    (("--batch", "1,0,2"), "not a whole number above 0"),
]


@pytest.mark.parametrize(
    ("name", "words", "complaint"),
    [
        *((name, *refused) for name in NAMES for refused in OF_BOTH),
        *(("elastic", *refused) for refused in OF_ELASTIC),
        *(("bursts", *refused) for refused in OF_BURSTS),
    ],
)
def test_what_cannot_be_is_refused(
    name: str, words: tuple[str, str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([name, "--device", "soft", *words])
    assert ended.value.code == 2
    assert complaint in capsys.readouterr().err


@pytest.mark.parametrize("name", NAMES)
def test_nothing_measured_is_nothing_to_show(name: str) -> None:
    experiment = EXPERIMENTS[name]
    assert experiment.sheets({"records": []}) == []
    assert experiment.figures({"records": []}) == {}
    with pytest.raises(NotMeasurableError, match="nothing was measured"):
        experiment.plot({"records": []}, None)
