"""What flavors of Nova say, in definitions as Nova writes them (33.1); and that a command takes it up."""

import contextlib
from xml.etree import ElementTree
from xml.sax.saxutils import quoteattr

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend_host.entitlement import PLAIN, Entitlement
from backend_host.vm.domain_xml import NAMESPACE, PREFIX, DomainXml
from backend_host.vm.errors import VmError
from backend_host.vm.nova import flavor_changes

DEFINITION = """
<domain type='kvm' id='9'>
  <name>instance-0000000e</name>
  <uuid>e87f30c5-911b-46a7-8aaa-01c43325c5b2</uuid>
  <metadata>{more}
    <nova:instance xmlns:nova="http://openstack.org/xmlns/libvirt/nova/1.1">
      <nova:package version="33.1.0"/>
      <nova:name>render</nova:name>
      <nova:creationTime>2026-07-19 08:43:41</nova:creationTime>
      <nova:flavor name="gpu.medium" id="3">
        <nova:memory>4096</nova:memory>
        <nova:disk>40</nova:disk>
        <nova:swap>0</nova:swap>
        <nova:ephemeral>0</nova:ephemeral>
        <nova:vcpus>2</nova:vcpus>
        {specs}
      </nova:flavor>
      <nova:image uuid="7899d69a-dcb4-4634-b8f1-c25df4813035">
        <nova:properties>
          <nova:property name="fairgv:weight">9999</nova:property>
        </nova:properties>
      </nova:image>
      <nova:owner>
        <nova:user uuid="702a1c7f8fe">admin</nova:user>
      </nova:owner>
    </nova:instance>
  </metadata>
  <memory unit='KiB'>4194304</memory>
  <os><type arch='x86_64' machine='pc-i440fx-7.2'>hvm</type></os>
  <devices/>
</domain>"""


def definition(specs: dict[str, str] | None, more: str = "") -> str:
    elements = [
        f"<nova:extraSpec name={quoteattr(name)}>{value}</nova:extraSpec>" for name, value in (specs or {}).items()
    ]
    text = f"<nova:extraSpecs>{''.join(elements)}</nova:extraSpecs>" if specs is not None else ""
    return DEFINITION.format(specs=text, more=more)


def entitled(specs: dict[str, str] | None, more: str = "") -> Entitlement:
    return DomainXml(definition(specs, more)).settings(Entitlement(weight=7, quota_bytes=1 << 30)).entitlement


def test_what_a_flavor_says_and_what_it_leaves_out() -> None:
    assert entitled({"fairgv:weight": "3", "fairgv:memory": "4G", "hw:cpu_policy": "shared"}) == Entitlement(3, 4 << 30)
    assert entitled({"fairgv:weight": "3"}) == Entitlement(3, 1 << 30), "the rest is as configured"
    assert entitled({"fairgv:request": "10", "fairgv:limit": "50.5", "fairgv:gpu": "0"}) == Entitlement(
        7, 1 << 30, gpu="0", request=10.0, limit=50.5
    )
    assert entitled({" fairgv: weight ": " 4 "}).weight == 4, "Nova was seen to put a space there"


@pytest.mark.parametrize("specs", [None, {}, {"hw:cpu_policy": "shared", "weight": "3", "notfairgv:weight": "3"}])
def test_a_flavor_that_says_nothing_of_us(specs: dict[str, str] | None) -> None:
    assert entitled(specs) == Entitlement(7, 1 << 30)


def test_our_own_metadata_has_the_say() -> None:
    own = f"<{PREFIX}:vgpu xmlns:{PREFIX}='{NAMESPACE}' weight='5'/>"
    assert entitled({"fairgv:weight": "3", "fairgv:memory": "4G"}, own) == Entitlement(5, 1 << 30)
    assert entitled({"fairgv:wieght": "3"}, own).weight == 5


@pytest.mark.parametrize(
    ("specs", "why"),
    [
        ({"fairgv:wieght": "3"}, "extra spec fairgv:wieght, which is none; there are: fairgv:weight, fairgv:memory"),
        ({"fairgv:": "3"}, "which is none"),
        ({"fairgv:weight": "much"}, "fairgv:weight of its flavor: a weight is a whole number"),
        ({"fairgv:weight": ""}, "a weight is"),
        ({"fairgv:memory": "-4G"}, "a memory quota is"),
        ({"fairgv:limit": "1e9"}, "a limit is"),
        ({"fairgv:gpu": "../0"}, "a Gpu is called"),
        ({"fairgv:request": "50", "fairgv:limit": "40"}, "the flavor of domain instance-0000000e"),
    ],
)
def test_what_is_wrong_is_said(specs: dict[str, str], why: str) -> None:
    with pytest.raises(VmError, match=why):
        entitled(specs)


@given(
    st.text(st.characters(codec="ascii", categories=["L", "N", "P"]), max_size=30),
    st.text("0123456789.eGx-", max_size=9),
)
def test_any_text_is_an_entitlement_or_a_refusal(name: str, value: str) -> None:
    for key in (name, f"fairgv:{name}", "fairgv:weight", "fairgv:memory", "fairgv:limit"):
        root = ElementTree.fromstring(definition({key: value}))
        with contextlib.suppress(VmError):
            PLAIN.changed(flavor_changes(root))
