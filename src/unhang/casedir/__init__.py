"""The case directory: its layout, its name, whose it is, and what lies in it.

    unhang-cases/<time>-<job>/
        manifest.json     everything below, per rank: what was asked for, what came, why not
        parts/<run>.json  what each node contributed; the manifest is merged from these
        dumps/<backend>/rank_<N>
        stacks/  logs/  env/
        reports/          verdicts of other commands
        report.json  report.txt

A directory is made once and never overwritten: a second incident gets a second directory. It is its
owner's alone (0700, files 0600): a case tells more of a job than its logs do. `manifest` makes and
fills it, `sharing` says whose it is, `reports` keeps verdicts in it. Nothing is imported here:
`run` needs `sharing` before its child starts, and no more.
"""
