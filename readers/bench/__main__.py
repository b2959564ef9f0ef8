"""What `packer bench` runs in a process of its own: JSON as its argument, JSON as its output."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from readers.bench.chart import draw_chart
from readers.bench.run import bench
from readers.store.child_process import end_with_parent
from readers.store.errors import StoreError


def answer(arguments: dict[str, Any]) -> dict[str, Any]:
    """What was found, in all forms; or the error, in words.

    Args:
        arguments: Of `bench`, by name; and `output`, where the best settings are written, if
            anywhere.
    """
    output = arguments.pop("output")
    try:
        report = bench(**arguments)
        if output is not None:
            report.best_settings().write(output)
    except OSError as error:
        return {"error": f"{error.filename}: {error.strerror}" if error.filename else str(error)}
    except (StoreError, ValueError) as error:
        return {"error": str(error)}
    return {
        "report": report.as_dict(),
        "summary": report.summary(),
        "chart": draw_chart(report),
    }


def main() -> None:
    """Run the program."""
    given = json.loads(sys.argv[1])
    end_with_parent(given.pop("parent"), by_kernel=True)
    # What libraries print must not come into the answer.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    json.dump(answer(given), out)
    out.close()


if __name__ == "__main__":
    main()
