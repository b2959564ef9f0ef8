"""A build as three jobs of Slurm, with nothing but Slurm: plan, an array that works, publish.

The scripts are ordinary ones, made of `packer build --plan-only`, `packer work` and `packer
publish`; what they know of the array stands in them as text. They are kept beside their logs in
`OUT.slurm/`, which stays when the unfinished build is gone: it says what happened.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from packer.errors import SubmitError
from packer.wording import Summarized

LOGS_SUFFIX = ".slurm"

_OURS = ("--array", "-a", "--dependency", "-d", "--wrap", "--kill-on-invalid-dep")
"""Options of sbatch that make the three jobs what they are."""

_ANSWER_S = 120.0


def logs_folder(out: Path) -> Path:
    """The folder of scripts and logs of the build of `out`."""
    return out.with_name(out.name + LOGS_SUFFIX)


def packer_command() -> list[str]:
    """The start of a command line that runs this `packer` on another node."""
    beside = Path(sys.executable).with_name("packer")
    return [os.fspath(beside)] if beside.is_file() else [sys.executable, "-m", "packer.cli"]


@dataclass(frozen=True, kw_only=True)
class Job:
    """One job of a build.

    Attributes:
        name: "plan", "work" or "publish".
        script: Text of its script.
        path: Where the script is kept.
        after: Jobs that it waits for, by name, and how: {"plan": "afterok"}.
    """

    name: str
    script: str
    path: Path
    after: dict[str, str]

    def command(self, numbers: dict[str, str]) -> list[str]:
        """The command that submits it, given the numbers of the jobs before it."""
        command = ["sbatch", "--parsable"]
        if self.after:
            parts = [f"{how}:{numbers[name]}" for name, how in self.after.items()]
            # A job whose plan failed would wait for ever otherwise.
            command += [f"--dependency={','.join(parts)}", "--kill-on-invalid-dep=yes"]
        return [*command, os.fspath(self.path)]


@dataclass(frozen=True, kw_only=True)
class Submission(Summarized):
    """What was submitted.

    Attributes:
        path: Where the store is to be.
        logs: Folder of scripts and logs.
        jobs: Number of each job, by name.
    """

    path: str
    logs: str
    jobs: dict[str, str]

    def as_dict(self) -> dict[str, Any]:
        """All of it by name, as `--json` prints it."""
        return asdict(self)

    def summary(self) -> str:
        """What was done, how to watch it, and how to stop it."""
        jobs = ", ".join(f"{name} {number}" for name, number in self.jobs.items())
        out = shlex.quote(self.path)
        return "\n".join(
            (
                f"submitted: {jobs}",
                f"watch:     packer status {out} --watch",
                f"logs:      {self.logs}",
                f"stop:      scancel {' '.join(reversed(self.jobs.values()))}",
                "go on:     the same command again, once these have ended",
            )
        )


def make_jobs(
    out: Path,
    packer: Sequence[str],
    build_arguments: Sequence[str],
    *,
    task_count: int,
    cpus_per_task: int | None = None,
    sbatch: str = "",
    work_arguments: Sequence[str] = (),
    folder: Path | None = None,
) -> list[Job]:
    """The jobs of a build, in the order in which they are submitted.

    Args:
        out: Where the store is to be.
        packer: The start of a command line that runs `packer` on a node.
        build_arguments: Arguments of `packer build`: raw folder, target and options.
        task_count: Tasks of the array, each a process of `packer work` with its own build workers.
        cpus_per_task: Cores of each task. None leaves that to Slurm and to `sbatch`.
        sbatch: More options for all three jobs, as one would type them after `sbatch`.
        work_arguments: Options of `packer work` and `packer publish`: workers, scratch.
        folder: Working folder of the jobs. None takes the current one.

    Raises:
        ValueError: A count is out of its range, or `sbatch` has an option that the jobs need.
    """
    for name, value in (("task_count", task_count), ("cpus_per_task", cpus_per_task)):
        if value is not None and value < 1:
            raise ValueError(f"{name} must be at least 1; got {value!r}")
    extra = _joined(shlex.split(sbatch))
    for option in extra:
        if option.split("=")[0].split()[0] in _OURS:
            raise ValueError(
                f"sbatch must not have {', '.join(_OURS)}, which make the three jobs what they "
                f"are; got {option!r}"
            )
    logs = logs_folder(out)
    base = folder or Path.cwd()
    if cpus_per_task is not None:
        extra = [f"--cpus-per-task={cpus_per_task}", *extra]
        if not any(argument.startswith("--workers") for argument in work_arguments):
            work_arguments = ["--workers", str(cpus_per_task), *work_arguments]
    run, target = shlex.join(packer), shlex.quote(os.fspath(out))
    options = "".join(f" {shlex.quote(argument)}" for argument in work_arguments)
    plan = f"{run} build {shlex.join(build_arguments)} --plan-only"
    work = (
        f'{run} work {target} --part "$SLURM_ARRAY_TASK_ID/{task_count}" '
        f'--name "task ${{SLURM_ARRAY_JOB_ID}}_$SLURM_ARRAY_TASK_ID"{options}'
    )
    publish = f"{run} publish {target}{options}"
    array = [f"--array=1-{task_count}"]

    def job(name: str, command: str, log: str, own: Sequence[str] = (), **after: str) -> Job:
        directives = [
            f"--job-name=packer-{name}",
            f"--chdir={_quoted(os.fspath(base))}",
            f"--output={_quoted(os.fspath(logs).replace('%', '%%') + '/' + log)}",
            "--open-mode=append",
            "--requeue",
            *own,
            *extra,
        ]
        lines = ["#!/bin/sh", *(f"#SBATCH {directive}" for directive in directives), ""]
        # In the shell's place, so that it is packer that Slurm's signals reach.
        script = "\n".join([*lines, f"exec {command}", ""])
        return Job(name=name, script=script, path=logs / f"{name}.sh", after=after)

    return [
        job("plan", plan, "plan-%j.log"),
        job("work", work, "work-%A_%a.log", array, plan="afterok"),
        job("publish", publish, "publish-%j.log", plan="afterok", work="afterany"),
    ]


def _joined(words: Sequence[str]) -> list[str]:
    """Options as sbatch reads them from a script, one a line: `-p cpu` stays together."""
    options: list[str] = []
    for word in words:
        if word.startswith("-") or not options:
            options.append(word if "=" not in word else _with_quoted_value(word))
        else:
            options[-1] += f" {_quoted(word)}"
    return options


def _with_quoted_value(word: str) -> str:
    name, _, value = word.partition("=")
    return f"{name}={_quoted(value)}"


def _quoted(value: str) -> str:
    """A value in a line of #SBATCH, which knows quotes but no shell."""
    return f'"{value}"' if any(c.isspace() for c in value) else value


def dry_run_text(jobs: Sequence[Job]) -> str:
    """The scripts, and the commands that would submit them, as one would type them in a shell."""
    numbers = {job.name: f"${{{job.name}}}" for job in jobs}
    parts = []
    for job in jobs:
        *command, path = job.command(numbers)
        submitted = f"{job.name}=$({' '.join(command)} {shlex.quote(path)})"
        parts.append(f"# {job.path}\n# {submitted}\n{job.script}")
    return "\n".join(parts)


def submit(out: Path, jobs: Sequence[Job]) -> Submission:
    """Submit the jobs of a build; all, or none.

    Args:
        out: Where the store is to be.
        jobs: From `make_jobs`.

    Raises:
        SubmitError: Slurm is not there, or refuses a job; its own words are in the message.
    """
    logs = logs_folder(out)
    logs.mkdir(parents=True, exist_ok=True)
    numbers: dict[str, str] = {}
    for job in jobs:
        job.path.write_text(job.script)
        try:
            # With several clusters it answers "number;cluster".
            numbers[job.name] = _run(job.command(numbers)).strip().split(";")[0]
        except SubmitError:
            if numbers:
                _run(["scancel", *numbers.values()])
            raise
    return Submission(path=str(out), logs=str(logs), jobs=numbers)


def _run(command: Sequence[str]) -> str:
    """What a program of Slurm says on stdout."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_ANSWER_S, check=False
        )
    except FileNotFoundError as error:
        raise SubmitError(
            f"{command[0]}: there is no such program here, so this is not a node of a Slurm "
            "cluster. See the scripts with --dry-run; other schedulers run the same commands "
            "(docs/clusters.md)."
        ) from error
    except subprocess.TimeoutExpired as error:
        raise SubmitError(
            f"{shlex.join(command)}: no answer within {_ANSWER_S:.0f} s. See sinfo and squeue "
            "before you try again: the job may be there."
        ) from error
    if done.returncode:
        said = (done.stderr or done.stdout).strip()
        raise SubmitError(
            f"{shlex.join(command)}: {said}\nNothing is submitted. Mend that and run the same "
            "command."
        )
    return done.stdout
