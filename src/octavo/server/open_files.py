"""The files of the server process: enough of them, and none where the standard streams belong."""

import os
import resource

MAX_OPEN_FILES = 65536
"""A connection is an open file, and many systems start processes with room for 1,024."""
_STANDARD_STREAMS = (0, 1, 2)


def allow_open_files() -> None:
    """Raise this process's limit of open files as far as the system lets it, but not beyond MAX_OPEN_FILES."""
    limit, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_OPEN_FILES if most == resource.RLIM_INFINITY else min(most, MAX_OPEN_FILES)
    if limit != resource.RLIM_INFINITY and limit < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


def open_standard_streams() -> None:
    """Open those that this process was started without: a socket in their place would abort it when it is closed."""
    for descriptor in _STANDARD_STREAMS:
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number: this one
