"""As whom QEMU runs a domain, with a libvirt that is played."""

import pytest

from backend_host.vm.connection import qemu_owner
from backend_host.vm.domain_xml import DomainXml
from backend_host.vm.errors import VmError


class _Connection:
    def getURI(self) -> str:  # noqa: N802  (libvirt's name)
        return "qemu:///system"


@pytest.mark.parametrize("label", ["+4294967000", "+99999999999999999999"])
def test_a_user_that_the_host_lacks(label: str) -> None:
    text = f"<domain type='kvm'><seclabel model='dac' type='static'><label>{label}</label></seclabel></domain>"
    with pytest.raises(VmError, match="whom this host does not know: name a group beside it"):
        qemu_owner(_Connection(), DomainXml(text))
    with_group = DomainXml(text.replace(label, f"{label}:+7"))
    assert qemu_owner(_Connection(), with_group).gid == 7
