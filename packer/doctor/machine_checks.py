"""Checks of the machine and of this job's share of it. Pure functions from facts to checks."""

from __future__ import annotations

from packer.doctor.check import Check
from packer.doctor.need import Need
from packer.doctor.torch_facts import TorchFacts
from packer.wording import count_text, size_text
from readers.machine import Machine

_MEMORY_SHARE_MAX = 0.5
"""Buffers beyond this share of what is left crowd out the model's host side and the page cache."""

_CONTAINER_SHM_BYTES = 64 * 2**20
"""What /dev/shm holds in a container when nobody asked for more."""


def check_cores(machine: Machine, need: Need) -> Check:
    """Loader workers against the cores that this job may use."""
    usable = machine.core_count
    parts = [f"{usable} of {count_text(machine.cpu_count, 'core')} for this job"]
    if machine.affinity_count < machine.cpu_count:
        parts.append(f"affinity allows {machine.affinity_count}")
    if machine.cgroup_core_count is not None:
        parts.append(f"cgroup allows {machine.cgroup_core_count:g}")
    if machine.local_rank_count > 1:
        parts.append(f"{machine.local_rank_count} training processes here")
    parts.append(f"{count_text(need.worker_count, 'loader worker')} each")
    wanted = need.worker_count * machine.local_rank_count
    is_narrow = usable < machine.cpu_count
    if wanted <= usable:
        why = "Loader workers beyond the cores of the job only wait for one another."
        if is_narrow:
            why += " Programs that ask for the machine's core count start too many here."
        return Check("cores", "pass", "; ".join(parts), why)
    fitting = max(0, usable // machine.local_rank_count)
    return Check(
        "cores",
        "warn",
        "; ".join(parts),
        f"{wanted} loader workers on {count_text(usable, 'core')} wait for one another, and the "
        "training processes for them.",
        f"make_loader(..., workers={fitting}), or ask the scheduler for more cores: "
        f"sbatch --cpus-per-task={wanted + machine.local_rank_count}, docker run --cpus={wanted}",
    )


def check_memory(machine: Machine, need: Need) -> Check:
    """Kept batch buffers against the memory that the machine and the cgroup leave."""
    memory = machine.memory
    figure = f"{size_text(memory.usable_bytes)} free of {size_text(memory.total_bytes)}"
    if memory.limit_bytes is not None:
        figure += (
            f"; cgroup limit {size_text(memory.limit_bytes)}, "
            f"{size_text(memory.used_bytes)} of it in use"
        )
    figure += f"; batch buffers need {size_text(need.buffer_bytes)} ({need.batches_text})"
    if need.sample_is_assumed:
        figure += ", if a sample is 224 x 224 RGB"
    remedy = (
        f"smaller batches (--batch-size {max(1, need.batch_size // 2)}), fewer loader workers, or "
        "more memory: sbatch --mem=..., docker run --memory=..."
    )
    if need.buffer_bytes > memory.usable_bytes:
        why = "A process that takes more is killed (out of memory), often a loader worker first."
        return Check("memory", "fail", figure, why, remedy)
    if need.buffer_bytes > _MEMORY_SHARE_MAX * memory.usable_bytes:
        why = "Buffers are kept, and pinned beside a GPU: they crowd out the store's page cache."
        return Check("memory", "warn", figure, why, remedy)
    why = "Batches live in buffers that are kept, and pinned beside a GPU."
    return Check("memory", "pass", figure, why)


def check_shared_memory(machine: Machine, need: Need) -> Check:
    """What batches of a stock DataLoader take in /dev/shm against what is free there."""
    space, name = machine.shared_memory, "shared_memory"
    if space is None:
        return Check(
            name,
            "warn",
            "no /dev/shm",
            "A stock DataLoader with loader workers hands its batches through /dev/shm.",
            "mount a tmpfs there: docker run --shm-size=1g, or mount -t tmpfs none /dev/shm",
        )
    figure = (
        f"{size_text(space.free_bytes)} free of {size_text(space.total_bytes)}; a stock DataLoader "
        f"needs {size_text(need.shared_bytes)} ({need.batches_text} of "
        f"{size_text(need.batch_bytes)})"
    )
    if need.sample_is_assumed:
        figure += ", if a sample is 224 x 224 RGB"
    if need.shared_bytes <= space.free_bytes:
        why = "Batches of a stock DataLoader go through /dev/shm while they are under way."
        if space.total_bytes <= _CONTAINER_SHM_BYTES:
            why += " A container's default of 64 MiB is soon too little."
        return Check(name, "pass", figure, why)
    rounds_up_to = -(-2 * need.shared_bytes // 2**30)
    room = space.free_bytes // max(1, need.rank_count * need.prefetch_factor * need.batch_bytes)
    fewer = (
        f"at most {count_text(room, 'loader worker')}"
        if room
        else f"smaller batches (--batch-size {max(1, need.batch_size // 2)})"
    )
    return Check(
        name,
        "warn",
        figure,
        "When /dev/shm is full, loader workers die of 'bus error' or 'unable to allocate shared "
        "memory', however much memory is free.",
        f"docker run --shm-size={rounds_up_to}g (or --ipc=host); Kubernetes: an emptyDir of medium "
        f"Memory at /dev/shm; or {fewer}; or make_loader, which does not use /dev/shm",
    )


def check_file_limit(machine: Machine, need: Need) -> Check:
    """Descriptors that training needs against the limit of this process."""
    limit, name = machine.file_limit, "file_limit"
    ours = limit.open_count + need.descriptor_count
    stock = limit.open_count + need.stock_descriptor_count
    figure = (
        f"{limit.soft:,} (may be raised to {limit.hard:,}); make_loader needs about {ours:,}, a "
        f"stock DataLoader about {stock:,}"
    )
    most = max(ours, stock)
    if limit.soft >= most:
        why = "Each batch under way holds descriptors; a store itself holds none."
        return Check(name, "pass", figure, why)
    if limit.hard >= most:
        remedy = f"ulimit -n {most}"
    else:
        remedy = (
            "fewer loader workers or smaller batches, or have the hard limit raised: LimitNOFILE= "
            "of systemd, nofile in /etc/security/limits.conf, docker run --ulimit nofile=65536"
        )
    if limit.soft < ours:
        why = "Training ends with 'Too many open files'."
        return Check(name, "fail", figure, why, remedy)
    why = (
        "A stock DataLoader passes a descriptor for each tensor, and ends with 'Too many open "
        "files' or 'received 0 items of ancdata'."
    )
    remedy += "; or torch.multiprocessing.set_sharing_strategy('file_system')"
    return Check(name, "warn", figure, why, remedy)


def check_threads(machine: Machine, torch: TorchFacts) -> Check:
    """Threads of torch and OpenCV against the cores of this job."""
    name, cores = "threads", machine.core_count
    set_to = machine.omp_num_threads
    parts = [f"OMP_NUM_THREADS {'not set' if set_to is None else repr(set_to)}"]
    wide = []
    if torch.cv2_version is not None:
        parts.append(f"OpenCV uses {torch.cv2_thread_count}")
        wide += ["OpenCV"] if torch.cv2_thread_count > cores else []
    if torch.problem is None:
        parts.append(f"torch uses {torch.torch_thread_count}")
        wide += ["torch"] if torch.torch_thread_count > cores else []
    figure = f"{', '.join(parts)}; {count_text(cores, 'core')}"
    if not wide:
        if torch.problem is not None and torch.cv2_version is None:
            return Check(name, "skip", figure, "Neither torch nor OpenCV can be asked here.")
        return Check(
            name,
            "pass",
            figure,
            "More threads than cores wait for one another. Workers of make_loader use one each; in "
            "workers of a stock DataLoader call cv2.setNumThreads(1).",
        )
    return Check(
        name,
        "warn",
        figure,
        f"{' and '.join(wide)}: more threads than this job has cores; they wait for one another, "
        "and each call of theirs becomes slower.",
        f"export OMP_NUM_THREADS={max(1, cores // machine.local_rank_count)}; "
        f"torch.set_num_threads({cores}); cv2.setNumThreads(1) in loader workers",
    )


def check_start_method(machine: Machine, torch: TorchFacts) -> Check:
    """What a fork of the process that asks would copy."""
    name = "start_method"
    figure = (
        f"{machine.start_method}; {count_text(machine.thread_count, 'thread')} alive in this "
        f"process, {count_text(len(machine.python_thread_names), 'Python thread')} of them beside "
        "the main one"
    )
    if torch.thread_count:
        figure += f"; {torch.thread_count} in one that has imported torch and OpenCV"
    if machine.start_method != "fork":
        why = (
            "Loader workers start as new interpreters: safe beside threads, some seconds each, and "
            "the script needs its `if __name__ == '__main__':`."
        )
        return Check(name, "pass", figure, why)
    if machine.python_thread_names:
        return Check(
            name,
            "warn",
            figure,
            "Loader workers are forked from this process. A lock that another thread "
            f"({', '.join(machine.python_thread_names[:3])}) holds at that moment stays locked in "
            "the worker for ever.",
            "start the loader before threads (iter(loader) first), or "
            "DataLoader(..., multiprocessing_context='forkserver')",
        )
    why = (
        "Loader workers are forked: a worker has the forking thread alone. That is safe while no "
        "other thread holds a lock; native threads of libraries wait for work meanwhile."
    )
    return Check(name, "pass", figure, why)


def check_load(machine: Machine) -> Check:
    """Who else computes on these cores."""
    name, python, cores = "load", machine.python, machine.core_count
    figure = (
        f"load average {machine.load_average:.1f} on {count_text(machine.cpu_count, 'core')}; "
        f"{count_text(python.count, 'other Python process')} of yours on the cores of this job, "
        f"{python.running_count} of them running"
    )
    if machine.load_average <= machine.cpu_count and python.running_count < cores:
        why = "Processes on the same cores take from loader workers what they need."
        return Check(name, "pass", figure, why)
    return Check(
        name,
        "warn",
        figure,
        "The cores are taken already: by another job, or by loader or build workers that a killed "
        "run left behind. Times measured now, those below too, are too long.",
        "see what runs: ps -u $USER -o pid,ppid,stat,etime,pcpu,args --sort=-pcpu | head",
    )


def check_cuda(machine: Machine, torch: TorchFacts) -> Check:
    """Devices, driver, and whether memory can be pinned for copies to them."""
    name, driver = "cuda", machine.nvidia_driver
    if torch.problem is not None:
        return Check(
            name,
            "skip",
            f"{torch.problem}; NVIDIA driver {driver or 'not there'}",
            "Training, and what is known of devices, needs torch. Building a store does not.",
            "pip install torch",
        )
    build = f"CUDA {torch.cuda_version}" if torch.cuda_version else "CPU only"
    figure = f"torch {torch.torch_version} ({build}), NVIDIA driver {driver or 'not there'}"
    if torch.devices:
        names = ", ".join(f"{device} {size_text(size)}" for device, size in torch.devices)
        figure += f"; {count_text(len(torch.devices), 'device')}: {names}"
    if torch.cuda_problem is not None:
        return Check(
            name,
            "fail",
            f"{figure}; {torch.cuda_problem}",
            "The devices are there, but cannot be used, or no memory can be pinned for copies.",
            "see nvidia-smi; is the device taken (compute mode), the driver too old for this torch,"
            " or memory full?",
        )
    if torch.devices:
        why = "Memory can be pinned: copies to a device run beside the computing."
        return Check(name, "pass", f"{figure}; pinning works", why)
    if driver is None:
        why = "No CUDA here. Nothing is pinned, and batches stay on the CPU."
        return Check(name, "pass", figure, why)
    if torch.cuda_version is None:
        why = "There is a driver, but this torch was built without CUDA and will train on the CPU."
        remedy = "install a CUDA build of torch: https://pytorch.org/get-started/locally"
    else:
        why = "There is a driver, but torch finds no device: hidden from this job, or too new."
        remedy = "see nvidia-smi and CUDA_VISIBLE_DEVICES; docker run --gpus all, sbatch --gres=gpu"
    return Check(name, "warn", figure, why, remedy)


def machine_checks(machine: Machine, torch: TorchFacts, need: Need) -> list[Check]:
    """All of them, in the order of the checklist."""
    return [
        check_cores(machine, need),
        check_memory(machine, need),
        check_shared_memory(machine, need),
        check_file_limit(machine, need),
        check_threads(machine, torch),
        check_start_method(machine, torch),
        check_load(machine),
        check_cuda(machine, torch),
    ]
