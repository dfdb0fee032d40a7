"""What a flavor of OpenStack Nova says of a vGPU: extra specs `fairgv:weight`, `fairgv:memory` and so on, named as options of `attach` are.

Nova writes the instance's flavor with its extra specs into the domain's metadata, in a namespace of its own. Pure text, as domain_xml.py is.

Wrong when: Nova is so old that it writes no extra specs there. Then nothing is found, and the domain has what the configuration says.
"""

from xml.etree import ElementTree

from backend_host.entitlement import PARAMETERS, Changes, EntitlementError
from backend_host.vm.errors import VmError

NAMESPACE = "http://openstack.org/xmlns/libvirt/nova/1.1"
_SPECS = "metadata/{ns}instance/{ns}flavor/{ns}extraSpecs/{ns}extraSpec".replace("{ns}", f"{{{NAMESPACE}}}")
_SCOPE = "fairgv"
_FIELDS = {parameter.option.removeprefix("--"): name for name, parameter in PARAMETERS.items()}


def flavor_changes(definition: ElementTree.Element) -> Changes:
    """New values, by field, of the flavor in a domain's definition; nothing where it says nothing of us. Raises VmError for what is none."""
    changes = {}
    for element in definition.iterfind(_SPECS):
        scope, _, key = (part.strip() for part in element.get("name", "").partition(":"))
        if scope != _SCOPE:
            continue
        if key not in _FIELDS:
            raise VmError(
                f"its flavor has the extra spec {_SCOPE}:{key}, which is none; there are: {', '.join(_known())}"
            )
        try:
            changes[_FIELDS[key]] = PARAMETERS[_FIELDS[key]].parse((element.text or "").strip())
        except EntitlementError as error:
            raise VmError(f"the extra spec {_SCOPE}:{key} of its flavor: {error}") from error
    return changes


def _known() -> list[str]:
    return [f"{_SCOPE}:{key}" for key in _FIELDS]
