"""Code that softgpu cannot run: the guest's user reads why, and so does the host's operator."""

from tests.end_to_end.host import Host, wait_until


def test_machine_code_is_explained_on_both_sides(host: Host) -> None:
    result = host.guest("machine_code")
    assert result.stdout.count("launch: cudaErrorNoKernelImageForDevice") == 2
    lines = [line for line in result.stderr.splitlines() if "softgpu" in line]
    assert len(lines) == 1, result.stderr
    assert "sm_90" in lines[0]
    assert "code=compute_80" in lines[0]
    said = "the device library says: softgpu: an image has machine code for sm_90 and no PTX"
    wait_until(lambda: said in host.log(), "the daemon's log has it")
    assert host.log().count(said) == 1
