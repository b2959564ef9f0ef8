"""The many options of a build in groups, as `--help` lists them: what most people want first."""

from __future__ import annotations

import click

HELP_GROUPS: dict[str, tuple[str, ...]] = {
    "Options that most builds need": ("size", "fit", "image", "format_name", "workers"),
    "What to read": (
        "root",
        "classes",
        "split",
        "task",
        "path_column",
        "label_column",
        "label_is_index",
        "voc_origin",
        "include",
        "exclude",
        "limit",
    ),
    "How images are stored": (
        "max_side",
        "scaling",
        "mode",
        "quality",
        "raw_share",
        "raw_below",
        "target_bytes",
        "clip_boxes",
        "splits",
        "stratify",
        "shuffle",
        "shard_bytes_max",
    ),
    "What happens to bad input": ("on_error", "max_rejects", "pixels_max", "retry_rejects"),
    "Where and how it runs": (
        "overwrite",
        "update",
        "rehash",
        "scratch",
        "engine",
        "scheduler",
        "plan_only",
        "is_quiet",
        "is_verbose",
        "as_json",
    ),
}
"""Title of each group -> names of its options, in the order in which they are shown."""


class GroupedCommand(click.Command):
    """A command whose `--help` lists its options by `HELP_GROUPS`."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """A section for each group that has options; those of no group come last."""
        help_option = self.get_help_option(ctx)
        options = {param.name: param for param in self.params if isinstance(param, click.Option)}
        grouped = {name for names in HELP_GROUPS.values() for name in names}
        rest = tuple(name for name in options if name is not None and name not in grouped)
        sections = {**HELP_GROUPS, "More options": rest}
        shown = {
            title: [options[name] for name in names if name in options]
            for title, names in sections.items()
        }
        filled = {title: params for title, params in shown.items() if params}
        if help_option is not None:
            list(filled.values())[-1].append(help_option)
        for title, params in filled.items():
            with formatter.section(title):
                formatter.write_dl(
                    [row for row in (one.get_help_record(ctx) for one in params) if row]
                )
