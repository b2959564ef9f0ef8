"""What can go wrong in a build, apart from the store itself (`readers.store.errors`).

BuildError
├── SourceError                 the raw data is not there, not readable or not of a known layout
│   └── AmbiguousFormatError    it may be of several layouts, and the user has to say which
├── TargetExistsError           there is a store at the target already
├── TargetBusyError             another build is writing to the target
├── BuildMismatchError          an unfinished build of other settings or data is in the way
├── TooManyRejectsError         more raw items were rejected than the build may tolerate
├── RejectedItemError           a raw item was rejected under on_error="fail"
├── DamagedTaskError            a file of the plan is not as it was written
├── MissingShardsError          a planned build lacks more shards than publishing may make
├── SubmitError                 Slurm is not there, or refuses a job
├── NodeError                   this node cannot work on a planned build: it would make other bytes
├── NoSpaceError                a disk is full, or a file size limit was reached
├── DiskError                   a disk or a file server fails where the store is written
└── WorkerError                 build workers died over and over, or one met a bug
"""

from __future__ import annotations

import errno

NO_SPACE_ERRNOS = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)
"""What the system answers where a disk, a quota or a limit on file sizes is full."""


class BuildError(Exception):
    """A build cannot be done. The parent of every error of a build."""


class SourceError(BuildError):
    """The raw data is not there, not readable, or not of a known layout."""


class AmbiguousFormatError(SourceError):
    """The raw data may be of several layouts, and the user has to say which."""


class TargetExistsError(BuildError):
    """There is something at the target already."""


class TargetBusyError(BuildError):
    """Another build is writing to the target."""


class BuildMismatchError(BuildError):
    """An unfinished build of other settings or other data is in the way."""


class TooManyRejectsError(BuildError):
    """More raw items were rejected than the build may tolerate."""


class RejectedItemError(BuildError):
    """A raw item was rejected, and the build was told to stop at the first."""


class DamagedTaskError(BuildError):
    """A file of an unfinished build's plan is not as it was written."""


class MissingShardsError(BuildError):
    """A planned build lacks more shards than publishing it may make by itself."""


class SubmitError(BuildError):
    """Slurm is not there, or refuses a job."""


class NodeError(BuildError):
    """This node sees other raw data or has other libraries than the one that planned the build."""


class NoSpaceError(BuildError):
    """A disk is full, or a limit on file sizes was reached."""


class DiskError(BuildError):
    """A disk or a file server fails where the store is written."""


class WorkerError(BuildError):
    """Build workers died over and over, or one met a bug."""
