"""What a daemon answers to commands that move vGPUs."""

from collections.abc import Callable, Mapping

from backend_host.device.gpu import find
from backend_host.ipc import Message, Session
from backend_host.parts import Parts


class MoveAnswers:
    """To those of one daemon. Thread-safe."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def operations(self) -> Mapping[str, Callable[[Session, Message], Message]]:
        """By the names of requests."""
        return {"drain": self._drain, "undrain": self._undrain}

    def _drain(self, session: Session, request: Message) -> Message:
        gpu = find(self._parts.gpus, str(request["gpu"]))
        self._parts.drains.set(gpu, is_drained=True)
        text = f"GPU {gpu.number} is drained: no vGPU comes to it until fairgv-host undrain {gpu.number}"
        return {"text": text, "vgpus": sorted(self._parts.vgpus.names(gpu).values())}

    def _undrain(self, session: Session, request: Message) -> Message:
        gpu = find(self._parts.gpus, str(request["gpu"]))
        if not gpu.is_drained:
            return {"text": f"GPU {gpu.number} is not drained"}
        self._parts.drains.set(gpu, is_drained=False)
        return {"text": f"GPU {gpu.number} takes vGPUs again"}
