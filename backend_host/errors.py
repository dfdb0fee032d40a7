"""What can go wrong on the host, each with a sentence that names the cause and the remedy."""


class FairGVError(Exception):
    """Base of what the commands print as one line and exit 1 for."""


class LastingError(FairGVError):
    """The daemon cannot start, nor could it if it were started again: somebody has to mend something first."""


class ConfigError(LastingError):
    """A setting is not usable."""


class CannotListenError(FairGVError):
    """An address is not to be had now."""


class DaemonNotRunningError(FairGVError):
    """Nobody listens on the control socket."""


class DaemonRunningError(FairGVError):
    """A daemon already uses this state directory."""


class DeviceUnavailableError(FairGVError):
    """No device library could be opened, or it reports no device."""


class NotInstalledError(DeviceUnavailableError):
    """There is no device library on this host."""


class RefusedError(FairGVError):
    """The daemon refused a request."""


class WorkerFailedError(FairGVError):
    """A worker could not be started."""
