"""On a host with several GPUs a guest sees its own alone, and computes there."""

import pytest

from tests.end_to_end.host import Host, comparable

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("program", ["device_query", "vector_add", "pool_memory", "virtual_memory", "graph_build"])
def test_each_gpu_is_the_only_one_of_its_guests(gpu_host: Host, program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = gpu_host.status()["gpus"]
    if len(gpus) < 2:
        pytest.skip("this host has one GPU")
    for gpu in gpus:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", gpu["uuid"])
        native = comparable(gpu_host.native(program))
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
        assert comparable(gpu_host.guest(program, options=("--gpu", gpu["uuid"]))) == native
