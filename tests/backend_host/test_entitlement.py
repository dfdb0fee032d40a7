"""What a vGPU may have: read from wherever it is written, checked by one code, and refused by name."""

import argparse
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend_host.entitlement import (
    MAX_QUOTA_BYTES,
    MAX_WEIGHT,
    PARAMETERS,
    PLAIN,
    Entitlement,
    EntitlementError,
    add_options,
    given_options,
    option_names,
    read_changes,
)
from backend_host.qos import Target, read_qos
from backend_host.vm.domain_xml import Settings

BOUNDS = st.tuples(st.integers(0, 1000), st.integers(1, 1000)).map(sorted)
"""A request and a limit, in thousandths."""
SPACES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}", fullmatch=True)
CLASSED = st.one_of(
    st.builds(lambda space: {"space": space}, SPACES | st.just("")),
    st.builds(lambda space: {"vgpu_class": "best-effort", "space": space}, SPACES),
    st.builds(
        lambda qos, most, space: {"vgpu_class": "critical", "qos": qos, "most": most / 10, "space": space},
        st.sampled_from(["1.2", "1.05", "2", "100", "3ms", "500us", "0.5ms", "1.5s"]),
        st.integers(0, 1000),
        SPACES | st.just(""),
    ),
)
"""A class with what goes with it."""
ENTITLEMENTS = st.builds(
    lambda bounds, classed, **fields: Entitlement(request=bounds[0] / 10, limit=bounds[1] / 10, **classed, **fields),
    BOUNDS,
    CLASSED,
    weight=st.integers(1, MAX_WEIGHT),
    quota_bytes=st.integers(0, MAX_QUOTA_BYTES),
    gpu=st.from_regex(r"|[0-9]{1,2}|GPU-[0-9a-f]{8}(-[0-9a-f]{4})?", fullmatch=True),
)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser()
    add_options(made)
    return made


def command_line(entitlement: Entitlement) -> list[str]:
    written = entitlement.written()
    return [f"{parameter.option}={written[parameter.key]}" for parameter in PARAMETERS.values()]


@given(ENTITLEMENTS)
def test_it_is_the_same_wherever_it_is_written(entitlement: Entitlement) -> None:
    request = given_options(parser().parse_args(command_line(entitlement)))
    assert PLAIN.changed(read_changes(request)) == entitlement
    assert PLAIN.changed(read_changes(entitlement.written())) == entitlement
    metadata = Settings(entitlement).to_xml()
    assert Settings.from_xml(metadata, PLAIN).entitlement == entitlement
    assert ElementTree.fromstring(metadata).attrib.keys() == {parameter.key for parameter in PARAMETERS.values()}


def test_what_is_not_said_stays() -> None:
    before = Entitlement(weight=3, quota_bytes=1 << 30)
    assert given_options(parser().parse_args([])) == {}
    assert before.changed(read_changes({"op": "set", "name": "vm"})) == before
    assert before.changed(read_changes({"weight": 5})) == Entitlement(5, 1 << 30)
    assert before.changed(read_changes({"memory_bytes": "2G"})) == Entitlement(3, 2 << 30)


@pytest.mark.parametrize(
    "value", [0, -1, MAX_WEIGHT + 1, "heavy", None, 1.5, float("inf"), True, [1], {}, "", "1" * 5000]
)
def test_weights_that_are_none(value: object) -> None:
    with pytest.raises(EntitlementError, match=f"^weight: a weight is a whole number from 1 to {MAX_WEIGHT}, not "):
        read_changes({"weight": value})


@pytest.mark.parametrize("value", [-1, MAX_QUOTA_BYTES + 1, "much", "-1", float("nan"), [1], [], "", None, "9" * 400])
def test_quotas_that_are_none(value: object) -> None:
    with pytest.raises(EntitlementError, match=r"^--memory: a memory quota is a size from 0, for none, to 1024T, not "):
        read_changes({"memory_bytes": value}, as_options=True)


@pytest.mark.parametrize("value", ["GPU 1", "-", "1;2", "ä", "x" * 64, ["0"], -1])
def test_names_of_gpus_that_are_none(value: object) -> None:
    with pytest.raises(
        EntitlementError, match=r"^gpu: a Gpu is called by its number, or by the beginning of its UUID, not "
    ):
        read_changes({"gpu": value})


@pytest.mark.parametrize("key", ["request", "limit"])
@pytest.mark.parametrize(
    "value",
    [
        -0.1,
        100.1,
        "30 %",
        30.05,
        "a third",
        float("nan"),
        float("inf"),
        True,
        None,
        [30],
        "1/0",
        "1e9999999999",
        "9" * 5000,
    ],
)
def test_percentages_that_are_none(key: str, value: object) -> None:
    with pytest.raises(
        EntitlementError, match=rf"^--{key}: a {key} is a percentage from 0.*, with one decimal at most, not "
    ):
        read_changes({key: value}, as_options=True)


def test_a_limit_of_nothing_is_refused() -> None:
    with pytest.raises(EntitlementError, match=r"^limit: a limit is a percentage from 0\.1 to 100, for none"):
        read_changes({"limit": 0})


@pytest.mark.parametrize(
    ("limit", "permille"), [(30, 300), ("12.5", 125), (0.1, 1), (99.9, 999), (100, 0), ("100.0", 0)]
)
def test_a_limit_as_the_page_has_it(limit: object, permille: int) -> None:
    assert PLAIN.changed(read_changes({"limit": limit})).limit_permille == permille


def test_a_request_above_the_limit_is_refused_whichever_came_last() -> None:
    sentence = (
        r"^--request 60 % is above --limit 30 %: what a vGPU gets at least is no more than what it may use at most$"
    )
    with pytest.raises(EntitlementError, match=sentence):
        Entitlement(limit=30.0).changed(read_changes({"request": 60}))
    with pytest.raises(EntitlementError, match=sentence):
        Entitlement(request=60.0).changed(read_changes({"limit": 30}))
    assert str(Entitlement(request=30.0, limit=62.5)) == "weight 1, memory no limit, request 30 %, limit 62.5 %"


@pytest.mark.parametrize(
    "qos",
    ["1", "0.9", "-2", "101", "slow", "3 ms", "1us", "101s", "1e1", "nan", "inf", "3min", "1.2.3", [1.2], "9" * 5000],
)
def test_targets_that_are_none(qos: object) -> None:
    with pytest.raises(EntitlementError, match=r"^--qos: a qos is a slowdown above 1 .*, or a time .*, not "):
        read_changes({"class": "critical", "qos": qos}, as_options=True)


@pytest.mark.parametrize("space", ["a b", "-a", "_", "a,b", "a/b", "..", "x" * 33, "ä", ["a"]])
def test_names_of_spaces_that_are_none(space: object) -> None:
    with pytest.raises(EntitlementError, match=r"^space: a space is called by letters, digits, '-' and '_'"):
        read_changes({"space": space})


@pytest.mark.parametrize("vgpu_class", ["", "Critical", "besteffort", None, 1])
def test_classes_that_are_none(vgpu_class: object) -> None:
    with pytest.raises(EntitlementError, match=r"^class: a class is one of fair, critical, best-effort, not "):
        read_changes({"class": vgpu_class})


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ({"class": "critical"}, r"^--class critical needs a target: say --qos, a slowdown above 1"),
        ({"qos": "1.2"}, r"^--qos is for critical vGPUs, and this one is fair: leave it out, or say --class critical$"),
        ({"most": 10}, r"^--most is for critical vGPUs, and this one is fair"),
        ({"class": "best-effort"}, r"^--class best-effort fills what is left in a space: say --space NAME"),
        (
            {"class": "best-effort", "space": "a", "qos": "2"},
            r"^--qos is for critical vGPUs, and this one is best-effort",
        ),
    ],
)
def test_what_a_class_needs(said: dict[str, object], sentence: str) -> None:
    with pytest.raises(EntitlementError, match=sentence):
        PLAIN.changed(read_changes(said))


def test_with_the_class_goes_what_only_critical_ones_have() -> None:
    critical = Entitlement(vgpu_class="critical", qos="1.2", most=30.0, space="a")
    assert critical.changed(read_changes({"class": "fair"})) == Entitlement(space="a")
    assert critical.changed(read_changes({"qos": "3ms"})).qos == "3ms"
    assert str(critical) == "weight 1, memory no limit, class critical, space a, qos 1.2, most 30 %"


def test_a_target_is_a_slowdown_or_a_time() -> None:
    assert Target.of("1.2") == Target(slowdown=1.2)
    assert Target.of("3ms") == Target(time_ns=3_000_000)
    assert Target.of("0.5ms") == Target.of("500us") == Target(time_ns=500_000)
    assert read_qos(1.20) == "1.2"


def test_what_stays_for_life() -> None:
    assert PLAIN.changed(read_changes({"gpu": 1})) == Entitlement(gpu="1")
    with pytest.raises(EntitlementError, match=r"^gpu: a vGPU keeps what it was made with"):
        read_changes({"gpu": "1"}, is_new=False)
    with pytest.raises(EntitlementError, match=r"^space: a vGPU keeps what it was made with"):
        read_changes({"space": "a"}, is_new=False)
    later = argparse.ArgumentParser()
    add_options(later, is_new=False)
    assert "--gpu" not in later.format_help()
    assert "--space" not in later.format_help()
    assert Entitlement(2, gpu="0").followed_by(Entitlement(5, 4096, "1")) == Entitlement(5, 4096, "0")


@pytest.mark.parametrize("option", ["--space", "--gpu"])
def test_one_that_is_there_keeps_what_stays_for_life(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    later = argparse.ArgumentParser()
    add_options(later, is_new=False)
    with pytest.raises(SystemExit):
        later.parse_args([option, "1"])
    said = capsys.readouterr().err
    assert (
        f"argument {option}: a vGPU keeps what it was made with, for life: make another one so, by fairgv-host" in said
    )


@pytest.mark.parametrize("option", ["--space", "--gpu"])
def test_what_stays_for_life_is_said_once(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert vars(parser().parse_args([option, "1", option, "1"])) == {option.removeprefix("--"): "1"}
    with pytest.raises(SystemExit):
        parser().parse_args([option, "1", option, "2"])
    assert f"argument {option}: a vGPU has one, for life: give 1 or 2, not both" in capsys.readouterr().err
    assert vars(parser().parse_args(["--weight", "1", "--weight", "2"])) == {"weight": 2}


def test_none_exists_that_is_not_allowed() -> None:
    with pytest.raises(EntitlementError, match="a weight is"):
        Entitlement(weight=0)
    with pytest.raises(EntitlementError, match="a memory quota is"):
        PLAIN.changed({"quota_bytes": -1})


@pytest.mark.parametrize("arguments", [["--weight", "0"], ["--weight", "x"], ["--memory", "-1"], ["--memory", "2000T"]])
def test_an_option_that_is_wrong_is_named(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser().parse_args(arguments)
    option, value = arguments
    said = capsys.readouterr().err.splitlines()[-1]
    assert f"argument {option}: a " in said
    assert said.endswith(f", not {value!r}")


def test_each_field_is_described() -> None:
    described = parser().format_help()
    for parameter in PARAMETERS.values():
        assert f"{parameter.option} {parameter.metavar}" in described
        assert (parameter.option in option_names()) is not parameter.is_for_life
    assert str(Entitlement(2, 4 << 30)) == "weight 2, memory 4 GiB"
    assert str(PLAIN) == "weight 1, memory no limit"
